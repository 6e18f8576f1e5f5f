"""What both a node and the dataset make of raw rows: one formula, one place.

First what a rate is made of: tokens, steps and seconds of windows, of a depth's two parts, and of a load's requests.
Then the incomplete beta function, Student's t and the binomial distribution in plain Python, as nothing else here needs
scipy: relative error below 1e-10 where they are used (checked against published tables in the tests).

Repeats of a load step are windows by each request's part in the steady state of its load. A slot is one of the places
of a closed loop. Between the first answer and the last sending each answer is followed by a request at once. The time
that the client takes for that costs a fast engine the larger share; it is spread over the requests, in proportion to
their seconds in that time. So the rate of the whole is

    tok/s = concurrency x tokens made in slots / seconds of slots = tokens / wall clock of that time

The same over the requests of one category is the rate if that category filled the slots, at the pace that its requests
had beside the others. Numerators and denominators of the categories add up to those of the whole. A schedule has no
slots: the seconds of a request are its part in all of them, which is what it cost.

Times of single tokens are counted in buckets, on a log scale as in HdrHistogram (Tene). A bucket is 2 % wider than the
one before it, so a percentile read off its middle is within 1 %. Written as one list: bucket, tokens, bucket, ...
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from math import exp, floor, fsum, log, log1p
from statistics import NormalDist
from typing import Any, NamedTuple

from configs.steps.depth import DECODE, PREFILL, DepthShape
from configs.steps.load import with_category


def tokens_and_seconds(windows: Sequence[Mapping[str, Any]]) -> list[tuple[float, float]]:
    """Output tokens and seconds of each window: of the steady state where every window has one, else of it all."""
    # two kinds of seconds in one figure would make its repeats differ by how they were cut
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
    counts what was accepted behind an answer's last token (0.32.0; issue #56101). There are at least as many as
    verified a draft, plus one for the first token of each request, which has no draft (`first_drafts`: it has, as of
    `generate()`). The decoding of a depth begins behind that token.
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
    """Each request's tokens, spread evenly over its time (prefill and all), and its seconds, between two moments."""
    inside = [max(0.0, min(span.ended_s, end) - max(span.sent_s, begin)) for span in spans]
    return [
        (span.tokens * seconds / (span.ended_s - span.sent_s) if seconds else 0.0, seconds)
        for span, seconds in zip(spans, inside, strict=True)
    ]


OF_DECODING = (
    "engine_drafts", "engine_draft_tokens", "engine_accepted_tokens", "engine_accepted_by_position",
    "engine_denoising_steps",
)  # fmt: skip
"""What belongs to the decoding alone."""

OF_THE_RUN = ("chars", "energy_j", "power_w", "prefill_s", "decode_s")
"""What neither part has: sums over both, and the seconds that `wall_s` already is."""


def phases_of(run: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Prefill and decoding of one row of `depth_windows`; without a time there is no such part.

    Prefill: all tokens of the prompts until the last request has its first answer token. Decoding: the tokens behind
    first chunks, from the first chunk to the last token of all.
    """
    shape = shape_of(run)
    parts = []
    if run["prefill_s"]:
        made = {"condition": shape.prefill_name, "mode": PREFILL, "completion_tokens": run["prompt_tokens"]}
        parts.append({**run, **dict.fromkeys(OF_DECODING), **made, "wall_s": run["prefill_s"]})
    if run["decode_s"]:
        made = {"condition": shape.decode_name, "mode": DECODE, "completion_tokens": run["decode_tokens"]}
        parts.append({**run, **made, "wall_s": run["decode_s"]})
    return [part | dict.fromkeys(OF_THE_RUN) for part in parts]


def shape_of(run: Mapping[str, Any]) -> DepthShape:
    """What the run was asked for."""
    depth = run["depth_tokens"]
    return DepthShape(depth, run["context_tokens"] - depth, run["output_tokens"], run["concurrency"])


Row = dict[str, Any]

OF_WINDOWS = ("chars", *OF_DECODING)  # what only a whole window has, never a repeat of one category


def timed(requests: Sequence[Row]) -> list[Row]:
    """Requests of one machine with `slot_s` and `slot_tokens`, their part in the steady state, and `is_steady`.

    `slot_share` is what a second of theirs takes of a slot: more than 1 where slots were empty between requests. Of two
    attempts under one load the later counts, which began it again: two starts of the engine don't make one figure.

    `is_steady` is false for requests that were sent before the first answer, whose prefills wait for one another, and
    for the last ones that were sent, as many as there are slots, which run on while slots empty. They are chosen by the
    order of sending, which doesn't depend on how long anything took. On a schedule as many are left out at both ends.
    """
    return [row for rows in loops(requests) for row in _timed(rows[0]["concurrency"], rows)]


def loops(requests: Sequence[Row]) -> list[list[Row]]:
    """The same by loop: a load in an attempt, which has one clock."""
    last: dict[tuple[str, str], int] = {}
    for row in requests:
        asked = row["condition"], row["category"]
        last[asked] = max(last.get(asked, 0), row["attempt"])
    found: dict[tuple[str, int], list[Row]] = {}
    for row in requests:
        if row["attempt"] == last[row["condition"], row["category"]]:
            found.setdefault((row["condition"], row["attempt"]), []).append(row)
    return [*found.values()]


def _timed(concurrency: int | None, rows: Sequence[Row]) -> list[Row]:
    if concurrency is None:
        return _scheduled(rows)
    if concurrency == 1:
        return [row | {"slot_s": row["wall_s"], "slot_tokens": row["completion_tokens"], "is_steady": True,
                       "slot_share": 1.0} for row in rows]  # fmt: skip
    spans = [Span(row["sent_s"], row["sent_s"] + row["wall_s"], row["completion_tokens"]) for row in rows]
    begin, end = steady_bounds(spans)
    drain_s = sorted(row["sent_s"] for row in rows)[-concurrency:][0]
    inside = tokens_within(spans, begin, end)
    share = concurrency * (end - begin) / (fsum(seconds for _, seconds in inside) or 1.0)
    return [
        row
        | {"slot_s": share * seconds, "slot_tokens": tokens, "slot_share": share}
        | {"is_steady": begin <= row["sent_s"] < drain_s}
        for row, (tokens, seconds) in zip(rows, inside, strict=True)
    ]


def _scheduled(rows: Sequence[Row]) -> list[Row]:
    """Of an open loop: all of it took as long as its wall clock, whatever was in flight."""
    ordered = sorted(rows, key=lambda row: float(row["sent_s"]))
    ends = [row["sent_s"] + row["wall_s"] for row in ordered]
    share = (max(ends) - ordered[0]["sent_s"]) / (fsum(row["wall_s"] for row in ordered) or 1.0)
    filling = sum(row["sent_s"] < min(ends) for row in ordered)
    return [
        row
        | {"slot_s": share * row["wall_s"], "slot_tokens": row["completion_tokens"], "slot_share": share}
        | {"is_steady": filling <= place < len(ordered) - filling}
        for place, row in enumerate(ordered)
    ]


def by_category(rows: Iterable[Mapping[str, object]]) -> dict[str | None, list[Row]]:
    """Rows of the whole, under None, and of each category."""
    found: dict[str | None, list[Row]] = {None: []}
    for row in rows:
        found[None].append(dict(row))
        found.setdefault(str(row["category"]), []).append(dict(row))
    return found


def windows_of(requests: Sequence[Row]) -> list[Row]:
    """One row per load, category or whole suite, and repeat, from the requests of one commit on one machine."""
    found: dict[str, list[Row]] = {}
    for row in timed(requests):
        found.setdefault(row["condition"], []).append(row)
    last = max((row["attempt"] for row in requests), default=0)
    return [
        _window(with_category(load, category), repeat, last, each)
        for load, rows in found.items()
        for category, asked in by_category(rows).items()
        for repeat in dict.fromkeys(row["repeat"] for row in asked)
        if (each := [row for row in asked if row["repeat"] == repeat]) and fsum(row["slot_s"] for row in each) > 0
    ]


def _window(condition: str, repeat: int, attempt: int, rows: Sequence[Row]) -> Row:
    """Seconds are those of all slots over their number: what the work would have taken by the wall clock."""
    concurrency = rows[0]["concurrency"]
    return {
        "condition": condition,
        "mode": rows[0]["mode"],
        "concurrency": concurrency,
        "context_tokens": None,
        "output_tokens": rows[0]["output_tokens"],
        "repeat": repeat,
        "attempt": attempt,
        "requests": len(rows),
        "prompt_tokens": sum(row["prompt_tokens"] for row in rows),
        "completion_tokens": fsum(row["slot_tokens"] for row in rows),
        "wall_s": fsum(row["slot_s"] for row in rows) / (concurrency or 1),
        **dict.fromkeys(OF_WINDOWS),
    }


WIDTH = 0.02
"""By how much a bucket is wider than its neighbour. It must never change, since stored rows are read by it."""

LEAST_MS = 0.001  # replaces any shorter time: chunks that were read at once have no gap between them


def counted_gaps(gaps: Iterable[tuple[float, int]]) -> list[int]:
    """Inter-token latencies of an answer, from the seconds since the chunk before, which a chunk's tokens share."""
    counted: Counter[int] = Counter()
    for gap_s, tokens in gaps:
        counted[_bucket_of(1000 * gap_s / tokens)] += tokens
    return [number for bucket in sorted(counted) for number in (bucket, counted[bucket])]


def percentile_ms(histograms: Iterable[Sequence[int]], percent: float) -> float | None:
    """The least time that so many of all tokens, in percent, don't exceed; None: there is no token."""
    counted: Counter[int] = Counter()
    for each in histograms:
        for bucket, tokens in zip(each[::2], each[1::2], strict=True):
            counted[bucket] += tokens
    wanted, seen = percent / 100 * counted.total(), 0
    for bucket in sorted(counted):
        seen += counted[bucket]
        if seen >= wanted:
            return exp((bucket + 0.5) * log1p(WIDTH))
    return None


def _bucket_of(ms: float) -> int:
    return floor(log(max(ms, LEAST_MS)) / log1p(WIDTH))


_TERMS = 400  # most terms of the continued fraction; it converges in O(sqrt(max(a, b))), 12 000 items need about 100
_TINY = 1e-300  # replaces a zero denominator in Lentz's method


def incomplete_beta(a: float, b: float, x: float) -> float:
    """Regularized incomplete beta function I_x(a, b), 0 ... 1.

    Source: continued fraction DLMF 8.17.22, evaluated by the modified Lentz method (Press et al., Numerical Recipes,
    3rd ed., section 6.4); I_x(a, b) = 1 - I_(1-x)(b, a) keeps it where it converges fast.
    """
    if x <= 0 or x >= 1:
        return 0.0 if x <= 0 else 1.0
    if x > (a + 1) / (a + b + 2):
        return 1 - incomplete_beta(b, a, 1 - x)
    log_front = math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log1p(-x)
    return math.exp(log_front) / a * _fraction(a, b, x)


def _fraction(a: float, b: float, x: float) -> float:
    c, d = 1.0, 1 / (1 - (a + b) * x / (a + 1))
    value = d
    for m in range(1, _TERMS):
        even = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m))
        odd = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))
        for term in (even, odd):
            d = 1 / ((1 + term * d) or _TINY)
            c = (1 + term / c) or _TINY
            value *= c * d
        if abs(c * d - 1) < 1e-14:
            break
    return value


def student_tail(t: float, degrees: float) -> float:
    """P(T > t) of Student's t: for t >= 0 I_x(degrees / 2, 1 / 2) / 2 (Abramowitz and Stegun 26.7.1)."""
    tail = incomplete_beta(degrees / 2, 0.5, degrees / (degrees + t * t)) / 2
    return tail if t >= 0 else 1 - tail


def student_quantile(tail: float, degrees: float) -> float:
    """The t > 0 with P(T > t) = tail, for a tail below 1/2.

    Newton's method from the normal quantile, which lies below: the tail is convex there, so no step goes too far.
    """
    t = NormalDist().inv_cdf(1 - tail)
    log_front = math.lgamma((degrees + 1) / 2) - math.lgamma(degrees / 2) - math.log(degrees * math.pi) / 2
    for _ in range(_TERMS):
        density = math.exp(log_front - (degrees + 1) / 2 * math.log1p(t * t / degrees))
        step = (student_tail(t, degrees) - tail) / density
        t += step
        if step <= 1e-12 * t:
            break
    return t


def binomial_at_most(hits: int, n: int, p: float) -> float:
    """P(Bin(n, p) <= hits) = 1 - I_p(hits + 1, n - hits) (Abramowitz and Stegun 26.5.24)."""
    return 1.0 if hits >= n else incomplete_beta(n - hits, hits + 1, 1 - p)
