"""Reads the answer letter out of an answer: one pure function per extractor, so that every framework can share them.

A thinking model names letters while it thinks. Grading the first one it names scores at chance or below (0.146
instead of 0.844 in docs/sources.md: mtp-diffusion-h100); the answer is the last letter of the body.
"""

from __future__ import annotations

import re

CHOICE_CHANCE = 0.25
"""Score of guessing among four options."""

_OPTION = re.compile(r"\(([A-D])\)")
_THOUGHT = re.compile(r"<think>.*?(?:</think>|$)", re.DOTALL)


def last_letter(body: str) -> str | None:
    """Extractor `last-letter`: the last `(X)` of the body, thoughts removed; None if it has no letter."""
    found = _OPTION.findall(_THOUGHT.sub("", body))
    return str(found[-1]) if found else None


def first_letter(reasoning: str, body: str) -> str | None:
    """Extractor `first-letter`: the first `(X)` anywhere. Kept to diagnose the trap, never as a result."""
    found = _OPTION.search(reasoning + "\n" + body)
    return found.group(1) if found else None
