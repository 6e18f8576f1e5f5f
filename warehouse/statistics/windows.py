"""What a rate is made of: the tokens and seconds of windows, by one rule wherever a rate is told."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import fsum
from typing import Any, NamedTuple


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


class Span(NamedTuple):
    """One request in a window: when it was sent and answered, on any one clock, and its output tokens."""

    sent_s: float
    ended_s: float
    tokens: int


def steady_bounds(spans: Sequence[Span]) -> tuple[float, float]:
    """From the first answer to the last sending: in between every answer is followed by a request at once."""
    return min(span.ended_s for span in spans), max(span.sent_s for span in spans)


def tokens_within(spans: Sequence[Span], begin: float, end: float) -> list[tuple[float, float]]:
    """Each request's tokens and its seconds in a slot between two moments; its tokens are spread evenly over its time.

    Where it is cut, its prefill counts like its decoding.
    """
    inside = [max(0.0, min(span.ended_s, end) - max(span.sent_s, begin)) for span in spans]
    return [
        (span.tokens * seconds / (span.ended_s - span.sent_s) if seconds else 0.0, seconds)
        for span, seconds in zip(spans, inside, strict=True)
    ]
