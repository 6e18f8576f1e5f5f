"""What a rate is made of: the tokens and seconds of windows, by one rule wherever a rate is told."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import fsum
from typing import Any


def tokens_and_seconds(windows: Sequence[Mapping[str, Any]]) -> list[tuple[float, float]]:
    """Output tokens and seconds of each window: of the steady state where every window has one, else of it all.

    Two kinds of seconds in one figure would make its repeats differ by how they were cut.
    """
    if all(row.get("steady_s") and row.get("steady_tokens") is not None for row in windows):
        return [(row["steady_tokens"], row["steady_s"]) for row in windows]
    return [(row["completion_tokens"], row["wall_s"]) for row in windows]


def rate_of(windows: Sequence[Mapping[str, Any]]) -> float:
    """Tokens per second: all tokens over all seconds."""
    tokens, seconds = zip(*tokens_and_seconds(windows), strict=True)
    return fsum(tokens) / fsum(seconds)
