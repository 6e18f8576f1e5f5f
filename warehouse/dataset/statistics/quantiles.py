"""Quantiles: percentiles that a sample is large enough for, and the percentile bootstrap, in plain Python.

The same data give the same interval on every machine (Efron and Tibshirani, "An Introduction to the Bootstrap" (1993),
chapter 13). The number of values below a percentile p is binomial (n, p), so order statistics bound it with 95 %
confidence where all n values lie below it, or all above, with a probability of at most 2.5 %. That takes 6 values for
the median, 36 for p90, 72 for p95, 368 for p99 (Hahn and Meeker, "Statistical Intervals" (1991), section 5.2).
"""

from __future__ import annotations

import hashlib
import math
import random
from collections import Counter
from collections.abc import Sequence

from warehouse.dataset.statistics.proportions import ALPHA

RESAMPLES = 2000
"""Draws per interval: the ends of a 95 % interval move by less than a tenth of its width from seed to seed."""

LEVEL = 0.95  # nominal two-sided coverage


def resampled_means_of_few(values: Sequence[float], identity: str) -> list[float]:
    """Means of `RESAMPLES` samples drawn with replacement, seeded by `identity`, what the row is called.

    Quick for many values of which few are distinct, as differences of right-or-wrong answers: how often each is drawn
    is multinomial, so it is drawn as one binomial after another: 12 000 items cost a few 100 000 steps, not 24 million.
    """
    n = len(values)
    ordered = sorted(Counter(values).items())
    source = _source(identity)
    means = []
    for _ in range(RESAMPLES):
        left, shares_left, total = n, n, 0.0
        for value, count in ordered:
            drawn = drawn_binomial(source, left, count / shares_left)
            left, shares_left, total = left - drawn, shares_left - count, total + value * drawn
        means.append(total / n)
    return means


def drawn_binomial(source: random.Random, n: int, p: float) -> int:
    """One draw from Bin(n, p), by inversion outwards from the mode: about sqrt(n p (1 - p)) steps.

    Source: Kemp, Communications in Statistics - Simulation and Computation 15 (1986) 805-813. Python has one from 3.12.
    """
    if n == 0 or p <= 0 or p >= 1:
        return n if p >= 1 else 0
    low = high = mode = int((n + 1) * p)
    log_choices = math.lgamma(n + 1) - math.lgamma(mode + 1) - math.lgamma(n - mode + 1)
    below = above = math.exp(log_choices + mode * math.log(p) + (n - mode) * math.log1p(-p))
    odds = p / (1 - p)
    left = source.random() - below
    while left > 0 and (low > 0 or high < n):
        if high < n:
            above *= (n - high) / (high + 1) * odds
            high += 1
            left -= above
            if left <= 0:
                return high
        if low > 0:
            below *= low / ((n - low + 1) * odds)
            low -= 1
            left -= below
            if left <= 0:
                return low
    return mode


def _source(identity: str) -> random.Random:
    return random.Random(int.from_bytes(hashlib.sha256(identity.encode()).digest()[:8], "big"))


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


def fewest_for(percent: float) -> int:
    """Independent values from which order statistics bound a percentile, 0 to 100, on both sides."""
    share = max(percent, 100 - percent) / 100
    return math.ceil(math.log(ALPHA / 2) / math.log(share))


def certified(values: Sequence[float], percent: float, independent: int | None = None) -> float | None:
    """A percentile, interpolated linearly between neighbours; None: there are too few values to bound it.

    `independent`: how many are, where that is fewer: a prompt that was asked twice takes about the same time twice.
    """
    if min(len(values), len(values) if independent is None else independent) < fewest_for(percent):
        return None
    return quantile(sorted(values), percent / 100)
