"""What a rate is made of: the tokens, steps and seconds of windows, and of the two parts of a depth's run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import fsum
from typing import Any, NamedTuple

from configs.steps.depth import DECODE, PREFILL, DepthShape


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


def steps_of(window: Mapping[str, Any], first_drafts: bool = False) -> int | None:
    """Decoding steps behind a window's tokens, each request's prefill among them; None: they were not counted.

    A step commits one token and those accepted, so steps = completion - accepted. That is too few where vLLM also
    counts what was accepted behind an answer's last token (0.32.0; issue #56101). There are at least as many steps as
    verified a draft, plus one for the first token of each request, which has no draft. The decoding of a depth begins
    behind that token.

    `first_drafts`: an answer's first step verifies a draft, too, as that of `generate()` does.
    """
    completion, accepted = window.get("completion_tokens"), window.get("engine_accepted_tokens")
    if completion is None or accepted is None:
        return None
    prefills = 0 if first_drafts or window.get("mode") == DECODE else window.get("requests") or 0
    return max(int(completion) - int(accepted), int(window.get("engine_drafts") or 0) + int(prefills))


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


UNCOUNTED = (
    "engine_drafts", "engine_draft_tokens", "engine_accepted_tokens", "engine_accepted_by_position",
    "engine_denoising_steps",
)  # fmt: skip
"""What belongs to the decoding alone."""

OF_THE_RUN = ("chars", "energy_j", "power_w", "prefill_s", "decode_s")
"""What neither part has: sums over both, and the seconds that `wall_s` already is."""


def phases_of(run: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Prefill and decoding of one row of `depth_windows`; without a time there is no such part.

    The rate is made of `completion_tokens` and `wall_s`. For the prefill these are all tokens of the prompts, until the
    last request has its first answer token. For the decoding they are the tokens behind first chunks, from the first
    chunk to the last token of all.
    """
    shape = shape_of(run)
    parts = []
    if run["prefill_s"]:
        made = {"condition": shape.prefill_name, "mode": PREFILL, "completion_tokens": run["prompt_tokens"]}
        parts.append({**run, **dict.fromkeys(UNCOUNTED), **made, "wall_s": run["prefill_s"]})
    if run["decode_s"]:
        made = {"condition": shape.decode_name, "mode": DECODE, "completion_tokens": run["decode_tokens"]}
        parts.append({**run, **made, "wall_s": run["decode_s"]})
    return [part | dict.fromkeys(OF_THE_RUN) for part in parts]


def shape_of(run: Mapping[str, Any]) -> DepthShape:
    """What the run was asked for."""
    depth = run["depth_tokens"]
    return DepthShape(depth, run["context_tokens"] - depth, run["output_tokens"], run["concurrency"])
