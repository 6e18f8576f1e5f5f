"""Names of prompts and requests: one canonical form for the tape and for whoever looks something up on it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any

HASH_DIGITS = 32
"""Hex digits of sha256 that are kept: 128 bits, no two requests of any store will meet."""


def prompt_hash(messages: Sequence[Mapping[str, Any]]) -> str:
    """Hash of who says what; the same however a client splits the text into content parts or labels it."""
    return _hash(plain_messages(messages))


def request_hash(body: Mapping[str, Any], sample: int = 0) -> str:
    """Hash of a whole request, sampling and all, with its messages as plain text.

    Without a seed, two samples of an item are the same request; then the sample's number is part of the hash, so that
    the second is not answered with the first one's answer.
    """
    salt = {} if "seed" in body else {"sample": sample}
    return _hash({**body, **salt, "messages": plain_messages(body.get("messages", ()))})


def plain_messages(messages: Sequence[Mapping[str, Any]]) -> list[dict[str, str]]:
    """Role and text of every message; what else a client hangs on a message (`type`, `name`) is left out."""
    return [{"role": str(said.get("role", "")), "content": plain_text(said.get("content"))} for said in messages]


def plain_text(content: object) -> str:
    """The text of a message's content: a string, OpenAI content parts, or nothing.

    Raises:
        ValueError: a part that is no text, e.g. an image; no suite here asks with one.
    """
    if content is None:
        return ""
    if isinstance(content, str):
        return content
    if isinstance(content, Sequence) and all(isinstance(part, Mapping) and "text" in part for part in content):
        return "\n".join(str(part["text"]) for part in content)  # as chat templates join them
    raise ValueError(f"message content is neither text nor text parts: {content!r:.80}")


def canonical(value: object) -> str:
    """JSON that is the same for equal values."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def _hash(what: object) -> str:
    return hashlib.sha256(canonical(what).encode("utf-8", "surrogatepass")).hexdigest()[:HASH_DIGITS]
