"""Percentile bootstrap over repeats, in plain Python: the same data give the same interval on every machine.

Source: Efron and Tibshirani, "An Introduction to the Bootstrap" (1993), chapter 13. With three to five repeats such an
interval says little more than how far apart the repeats lie, which is why rows and pages name their number.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Sequence

RESAMPLES = 2000
"""Draws per interval: the ends of a 95 % interval move by less than a tenth of its width from seed to seed."""

LEVEL = 0.95
"""Nominal two-sided coverage."""


def resampled_means(values: Sequence[float], identity: str) -> list[float]:
    """Means of `RESAMPLES` samples drawn with replacement, each as long as `values`.

    Args:
        values: one figure per repeat; at least one.
        identity: what the row is called; the seed follows from it, so that a build can be repeated bit for bit.
    """
    n = len(values)
    seed = int.from_bytes(hashlib.sha256(identity.encode()).digest()[:8], "big")
    drawn = random.Random(seed).choices(values, k=n * RESAMPLES)
    return [sum(drawn[start : start + n]) / n for start in range(0, n * RESAMPLES, n)]


def interval(statistics: Sequence[float]) -> tuple[float, float]:
    """Lower and upper end of the central 95 %."""
    ordered = sorted(statistics)
    return quantile(ordered, (1 - LEVEL) / 2), quantile(ordered, (1 + LEVEL) / 2)


def quantile(ordered: Sequence[float], share: float) -> float:
    """Quantile of sorted values, interpolated linearly between neighbours (Hyndman and Fan 1996, definition 7)."""
    position = (len(ordered) - 1) * share
    below = int(position)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (position - below) * (ordered[above] - ordered[below])


def ratio_interval(over: Sequence[float], under: Sequence[float]) -> tuple[float, float]:
    """Interval of a ratio of two means whose arms were resampled independently of each other."""
    return interval([a / b for a, b in zip(over, under, strict=True)])
