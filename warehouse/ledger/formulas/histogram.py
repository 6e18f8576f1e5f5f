"""Times of single tokens, counted in buckets: an answer has thousands, and a percentile over many answers needs all.

A bucket is 2 % wider than the one before it, so a percentile that is read off its middle is within 1 % of the true one.
Written as one list: bucket, tokens, bucket, tokens, ..., buckets ascending. As in HdrHistogram (Tene), on a log scale.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from math import exp, floor, log, log1p

WIDTH = 0.02
"""By how much a bucket is wider than its neighbour: a promise, since stored rows are read by it for ever."""

LEAST_MS = 0.001
"""Stands for any shorter time: chunks that were read at once have no gap between them."""


def counted_gaps(gaps: Iterable[tuple[float, int]]) -> list[int]:
    """Inter-token latencies of one answer.

    Args:
        gaps: of each chunk after the first, seconds since the one before it, and its tokens, which share them evenly.
    """
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
