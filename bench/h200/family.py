"""The demo's family as a GPU host's transformers 5.12 reads it: `family.py FROM TO`. Weights stay as they are.

The family is saved by transformers 5.19, which writes the width of full-attention heads layer by layer
(`per_layer_config`); 5.12 knows one number for all of them (`global_head_dim`).
"""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path
from typing import Any


def one_width(config: dict[str, Any]) -> dict[str, Any]:
    """The same model, its own and its text's layers told as 5.12 does; heads of several widths are an error."""
    layers = config.pop("per_layer_config", None) or {}
    for width in {layer["head_dim"] for layer in layers.values()}:
        if config.setdefault("global_head_dim", width) != width:
            raise SystemExit(f"family: full-attention heads of {width} and {config['global_head_dim']}: 5.12 has one")
    if "text_config" in config:
        config["text_config"] = one_width(config["text_config"])
    return config


def main(source: Path, target: Path) -> None:
    """Copy every member."""
    shutil.copytree(source, target, dirs_exist_ok=True)
    for file in target.glob("*/config.json"):
        file.write_text(json.dumps(one_width(json.loads(file.read_text())), indent=1))


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:3]))
