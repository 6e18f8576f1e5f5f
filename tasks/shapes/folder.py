"""From a shape to a folder that `vllm serve --load-format dummy` takes for a checkpoint. Standard library only."""

from __future__ import annotations

import hashlib
import json
import shutil
from functools import cache
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

from configs.checkout import ROOT
from configs.without_weights.shape import Shape
from tasks.shapes import tokenizer

MADE_OF = ROOT / "LICENSE"
"""What the tokenizer's merges are learnt from: English that every checkout has, and that never changes."""

DIGEST_HEX_DIGITS = 16

CHAT_TEMPLATE = "{% for message in messages %}{{ message['content'] }}{% endfor %}"
"""Nothing but the messages: dummy weights know no roles."""


@cache
def _merges() -> tuple[tuple[str, str], ...]:
    return tokenizer.learn_merges(MADE_OF.read_text(encoding="utf-8"))


def shape_digest(shape: Shape) -> str:
    """16 hex digits that tell what a shape's folder holds; the revision of its dummy checkpoint."""
    text = json.dumps([shape.model_dump(mode="json"), _merges(), CHAT_TEMPLATE], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:DIGEST_HEX_DIGITS]


def write_shape(shape: Shape, folder: Path) -> Path:
    """The folder of a shape below `folder`; written where it isn't there yet, and whole or not at all."""
    place = folder / f"{shape.name}-{shape_digest(shape)}"
    if place.exists():
        return place
    folder.mkdir(parents=True, exist_ok=True)
    made = Path(mkdtemp(dir=folder))
    for name, content in _files(shape).items():
        (made / name).write_text(json.dumps(content, ensure_ascii=False), encoding="utf-8")
    try:
        made.rename(place)
    except OSError:  # another runner of this machine was first
        shutil.rmtree(made)
    return place


def _files(shape: Shape) -> dict[str, Any]:
    special = tokenizer.SPECIAL_TOKENS
    named = {f"{name}_token": f"<{name}>" for name in ("bos", "eos", "pad", "unk")}
    ids = {f"{name}_token_id": special.index(f"<{name}>") for name in ("bos", "eos", "pad")}
    return {
        "config.json": shape.config | ids | ({"text_config": shape.text_config | ids} if shape.has_parts else {}),
        "generation_config.json": shape.generation | ids,
        "tokenizer.json": tokenizer.as_json(_merges(), shape.vocab_size),
        "tokenizer_config.json": named | {"tokenizer_class": "PreTrainedTokenizerFast", "chat_template": CHAT_TEMPLATE},
    }
