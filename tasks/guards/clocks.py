"""Guards over two clocks: the client's of each request, and the engine's own, which runs inside the client's time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tasks.guards.finding import Finding
from tasks.guards.speed import FEWEST_STREAMS
from warehouse.verdicts import Reason

ROUNDING_MS = 1.0
"""What two readings of one machine's monotonic clock may lose by being written down. Of 7022 requests to vLLM and
generate(), on two cores and on an H200, the client's was .8 ms longer at the least (2026-11)."""

HELD_BACK_MS = 1000.0
"""What a busy front end may take for a first token: tokenizing, detokenizing, the wire, the client's own reading.
Medians of the 165 conditions of streams among those requests were 1 to 17 ms, the worst single one 748 ms. With 11 busy
tasks on two cores most of a short load's were beyond 100 ms, of a fake engine that held nothing back."""


def clock_mismatch(requests: Sequence[Mapping[str, Any]]) -> Finding | None:
    """A client can't see a token, or an answer's end, before the engine made it: its time has the engine's inside.

    From sending to the first token there are queueing and prefill, to the last byte the generation as well. Where that
    doesn't hold one of the two clocks is wrong, and nobody knows which.

    Args:
        requests: rows with the engine's own account, where it gives one.
    """
    told = [row for row in requests if _own_ms(row) is not None]
    short = [each for row in told for each in _shorter(row)]
    if not short:
        return None
    ours_ms, own_ms, what = max(short, key=lambda each: each[1] - each[0])
    off = sum(bool(_shorter(row)) for row in told)
    sentence = (
        f"{off} of {len(told)} requests took the client less time than the engine says that it took itself, e.g. "
        f"{ours_ms:.1f} ms {what}, of which the engine's own {own_ms:.1f}"
    )
    return Finding(Reason.CLOCK_MISMATCH, "suspect", sentence)


def held_back(requests: Sequence[Mapping[str, Any]]) -> Finding | None:
    """A first token must be seen when the engine has made it, by the engine's own clock.

    An engine, or something before it, that finishes an answer and then sends it piece by piece has a first chunk of one
    token and a true rate; only its clock gives it away. What a front end takes is part of what users wait for, and
    grows with load and prompt: so not less than the engine itself took for that token, nor than half of the answer's
    generation, counts as held back, and most of the streams must have been.

    Args:
        requests: rows with both accounts of the first token; others, and those that weren't streamed, are left out.
    """
    streams = [row for row in requests if row.get("ttft_ms") is not None and _own_ms(row) is not None]
    late = [row["ttft_ms"] - (_own_ms(row) or 0.0) for row in streams if _is_held_back(row)]
    if len(streams) < FEWEST_STREAMS or 2 * len(late) <= len(streams):
        return None
    sentence = (
        f"{len(late)} of {len(streams)} first tokens were seen {min(late):.0f} ms or more after the engine had made "
        "them, by its own clock: they were held back on their way"
    )
    return Finding(Reason.LATE_FIRST_TOKEN, "suspect", sentence)


def _own_ms(row: Mapping[str, Any]) -> float | None:
    """The engine's time until a first token, queueing included; None: it didn't say."""
    made_ms: float | None = row.get("engine_ttft_ms")
    return None if made_ms is None else made_ms + (row.get("engine_queue_ms") or 0.0)


def _shorter(row: Mapping[str, Any]) -> list[tuple[float, float, str]]:
    """The client's time, the engine's inside it, and until when, wherever the first is shorter."""
    own_ms = _own_ms(row) or 0.0
    whole_ms = own_ms + (row.get("engine_generation_ms") or 0.0)
    spans = [(1000 * row["wall_s"], whole_ms, "to the last byte")]
    if row.get("ttft_ms") is not None:
        spans.append((row["ttft_ms"], own_ms, "to the first token"))
    return [each for each in spans if each[0] < each[1] - ROUNDING_MS]


def _is_held_back(row: Mapping[str, Any]) -> bool:
    own_ms = _own_ms(row) or 0.0
    return bool(row["ttft_ms"] - own_ms > max(HELD_BACK_MS, own_ms, (row.get("engine_generation_ms") or 0.0) / 2))
