"""Which checkpoint was really served: its commit, and whether its format is that of its row's label.

A precision below 16 bits that is not made while loading (awq, gptq, nvfp4 ...) is the checkpoint's own. From a
checkpoint in 16 bits an engine serves 16 bits without a word.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path

from configs.cell import Cell, argument
from tasks.host.hub import hub_cache

_COMMIT = re.compile(r"[0-9a-f]{40}")


def resolved_commit(hub_id: str, revision: str | None, env: Mapping[str, str]) -> str | None:
    """The commit behind a revision; None where the cache doesn't tell.

    Layout of the cache: huggingface_hub, "Understand caching": `models--ORG--NAME/refs/REVISION` holds the commit that
    a branch or tag was resolved to, `snapshots/COMMIT/` its files.

    `revision` is a branch, tag or commit; None: the default branch. `env` is the engine's.
    """
    if revision is not None and _COMMIT.fullmatch(revision):
        return revision
    folder = repository(hub_id, env)
    ref = folder / "refs" / (revision or "main")
    if ref.is_file():
        return ref.read_text(encoding="ascii").strip()
    snapshots = [path.name for path in folder.glob("snapshots/*")]
    return snapshots[0] if len(snapshots) == 1 else None


def repository(hub_id: str, env: Mapping[str, str]) -> Path:
    """The folder of a model's repository in that cache."""
    return hub_cache(env) / f"models--{hub_id.replace('/', '--')}"


KEYS = ("quantization_config", "compression_config")
"""Where `config.json`, or its part for text, says how weights are kept (vLLM 0.32.0, transformers_utils/); the second
is older."""

BESIDE = "hf_quant_config.json"
"""Where ModelOpt said it before 0.31."""

PLAIN_BYTES = 2.0
"""Of a parameter in 16 bits."""


def unlike_its_label(cell: Cell, commit: str | None, env: Mapping[str, str]) -> str | None:
    """Why a served checkpoint isn't in its cell's precision; None: it is, or nobody can tell.

    `commit` is of its model on the hub, as far as it is known; `env` is the engine's, which has read it by now.
    """
    precision, model = cell.precision, cell.model
    made_while_loading = precision.quantization is not None or precision.dtype is not None
    is_overridden = argument(cell.engine_words, "--hf-overrides") is not None
    if made_while_loading or is_overridden or precision.bytes_per_param >= PLAIN_BYTES or model.hub_id is None:
        return None
    folder = (
        Path(model.hub_id) if model.hub_id.startswith("/") else repository(model.hub_id, env) / f"snapshots/{commit}"
    )
    config = _config(folder)
    if (
        config is None
        or (folder / BESIDE).is_file()
        or any(_says(part) for part in (config, config.get("text_config")))
    ):
        return None
    return (
        f"{cell.label}: {model.hub_id} is no checkpoint in {precision.name}: its config.json has no {KEYS[0]}, and 16 "
        f"bits would have that label: name one in {precision.name} in the model's file, or the precision that it has"
    )


def _config(folder: Path) -> dict[str, object] | None:
    """What the checkpoint says of itself; None: it isn't there, or is something else."""
    try:
        config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return config if isinstance(config, dict) else None


def _says(part: object) -> bool:
    return isinstance(part, dict) and any(part.get(key) for key in KEYS)
