"""Folders that an engine takes for a checkpoint: config and tokenizer of a true shape, and no weights."""

from __future__ import annotations

import hashlib
import json
import re
import shutil
from collections import Counter
from functools import cache
from itertools import pairwise
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

from configs.checkout import ROOT
from configs.without_weights import CheckpointShape

SPECIAL_TOKENS = ("<pad>", "<eos>", "<bos>", "<unk>")  # the first ids, in this order
SPACE = "\N{LATIN CAPITAL LETTER G WITH DOT ABOVE}"  # how byte-level BPE writes a blank
LEAST_COUNT = 2  # pairs that are seen less often are not merged

Merges = tuple[tuple[str, str], ...]


def learn_merges(text: str) -> Merges:
    """Byte-pair merges of an English text, the most frequent first (Sennrich et al. 2016, arXiv:1508.07909)."""
    counted = Counter(re.findall(r" ?[A-Za-z]+", text))
    words = {tuple(word.replace(" ", SPACE)): count for word, count in counted.items()}
    merges: list[tuple[str, str]] = []
    while True:
        pairs: Counter[tuple[str, str]] = Counter()
        for pieces, count in words.items():
            for pair in pairwise(pieces):
                pairs[pair] += count
        best = max(pairs, key=lambda pair: (pairs[pair], pair), default=None)
        if best is None or pairs[best] < LEAST_COUNT:
            return tuple(merges)
        merges.append(best)
        words = {_merged(pieces, best): count for pieces, count in words.items()}


def _merged(pieces: tuple[str, ...], pair: tuple[str, str]) -> tuple[str, ...]:
    if pair[0] not in pieces:
        return pieces
    merged: list[str] = []
    for piece in pieces:
        if merged and (merged[-1], piece) == pair:
            merged[-1] += piece
        else:
            merged.append(piece)
    return tuple(merged)


def as_json(merges: Merges, vocab_size: int) -> dict[str, Any]:
    """The content of `tokenizer.json`: special tokens, all bytes, what the merges make, and fillers."""
    entries = dict.fromkeys([*SPECIAL_TOKENS, *_byte_letters(), *(left + right for left, right in merges)])
    vocab = {entry: number for number, entry in enumerate(entries)}
    vocab |= {f"{SPACE}t{number}": number for number in range(len(vocab), vocab_size)}
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    special = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [{"id": vocab[token], "content": token, **special} for token in SPECIAL_TOKENS],
        "normalizer": None,
        "pre_tokenizer": byte_level,
        "post_processor": None,
        "decoder": byte_level,
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": None,
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
            "fuse_unk": False,
            "byte_fallback": False,
            "ignore_merges": False,
            "vocab": vocab,
            "merges": [list(pair) for pair in merges],
        },
    }


def _byte_letters() -> list[str]:
    """The letter that stands for each byte: printable ones for themselves, the others from U+0100 on (GPT-2)."""
    printable = [*range(ord("!"), ord("~") + 1), *range(0xA1, 0xAC + 1), *range(0xAE, 0xFF + 1)]
    others = (byte for byte in range(256) if byte not in printable)
    letters = {byte: chr(byte) for byte in printable} | {byte: chr(0x100 + n) for n, byte in enumerate(others)}
    return [letters[byte] for byte in range(256)]


MADE_OF = ROOT / "LICENSE"  # what merges are learnt from: English that every checkout has, and that never changes

CHAT_TEMPLATE = "{% for message in messages %}{{ message['content'] }}{% endfor %}"
"""Nothing but the messages: dummy weights know no roles."""


@cache
def _merges() -> Merges:
    return learn_merges(MADE_OF.read_text(encoding="utf-8"))


def shape_digest(shape: CheckpointShape) -> str:
    """16 hex digits that tell what a shape's folder holds; the revision of its dummy checkpoint."""
    text = json.dumps([shape.model_dump(mode="json"), _merges(), CHAT_TEMPLATE], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def write_shape(shape: CheckpointShape, folder: Path) -> Path:
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


def _files(shape: CheckpointShape) -> dict[str, Any]:
    named = {f"{name}_token": f"<{name}>" for name in ("bos", "eos", "pad", "unk")}
    ids = {f"{name}_token_id": SPECIAL_TOKENS.index(f"<{name}>") for name in ("bos", "eos", "pad")}
    return {
        "config.json": shape.config | ids | ({"text_config": shape.text_config | ids} if shape.has_parts else {}),
        "generation_config.json": shape.generation | ids,
        "tokenizer.json": as_json(_merges(), shape.vocab_size),
        "tokenizer_config.json": named | {"tokenizer_class": "PreTrainedTokenizerFast", "chat_template": CHAT_TEMPLATE},
    }
