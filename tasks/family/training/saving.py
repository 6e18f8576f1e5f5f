"""How a trained model is written: bf16, its tokenizer, and a config that transformers 5.12 and 5.19 read alike."""

import json
from pathlib import Path
from typing import Any

import torch
from transformers import PreTrainedModel, PreTrainedTokenizerFast


def save(model: PreTrainedModel, tokenizer: PreTrainedTokenizerFast, folder: Path) -> None:
    """Writes what vLLM loads; the model is in bf16 afterwards."""
    model.to(torch.bfloat16).save_pretrained(folder)
    config = folder / "config.json"
    config.write_text(json.dumps(one_width(json.loads(config.read_text())), indent=2) + "\n")
    tokenizer.save_pretrained(folder)


def one_width(config: dict[str, Any]) -> dict[str, Any]:
    """The same config for a GPU host's transformers, which may be older.

    5.19 writes the width of full-attention heads layer by layer (`per_layer_config`); 5.12 knows one number for all of
    them (`global_head_dim`), and 5.19 reads that too.

    Raises:
        ValueError: the heads have several widths.
    """
    layers = config.pop("per_layer_config", None) or {}
    for width in {layer["head_dim"] for layer in layers.values()}:
        if config.setdefault("global_head_dim", width) != width:
            raise ValueError(f"full-attention heads of {width} and {config['global_head_dim']}: 5.12 has one width")
    if "text_config" in config:
        config["text_config"] = one_width(config["text_config"])
    return config
