"""Reads the answer letter of eval-tiny, whose own task asks for `(X)` and nothing else.

A thinking model names letters while it thinks. Grading the first one it names scores at chance or below (0.146
instead of 0.844 in docs/sources.md: mtp-diffusion-h100); the answer is the last letter of the body. What models answer
to everybody's questions is read by `tasks.evals.extractors`.
"""

from __future__ import annotations

from tasks.evals.extractors import first_bracketed, last_bracketed
from tasks.frameworks.job import THOUGHT

CHOICE_CHANCE = 0.25
"""Score of guessing among four options."""

LETTERS = "ABCD"


def last_letter(body: str) -> str | None:
    """Extractor `last-letter`: the last `(X)` of the body, thoughts removed; None if it has no letter."""
    return last_bracketed(LETTERS, THOUGHT.sub("", body))


def first_letter(reasoning: str, body: str) -> str | None:
    """Extractor `first-letter`: the first `(X)` anywhere. Kept to diagnose the trap, never as a result."""
    return first_bracketed(LETTERS, reasoning + "\n" + body)
