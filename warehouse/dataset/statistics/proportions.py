"""Shares of few trials, and of several answers per item."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from statistics import fmean

from warehouse.ledger.formulas.beta import binomial_at_most


def falling_root(falling: Callable[[float], float], low: float, high: float) -> float:
    """Where a falling function crosses zero between `low` and `high`, to 2^-60 of their distance."""
    for _ in range(60):
        middle = (low + high) / 2
        if falling(middle) > 0:
            low = middle
        else:
            high = middle
    return (low + high) / 2


ALPHA = 0.05
"""Error that a claim may have, before it is divided among looks and comparisons."""


def exact_interval(successes: int, n: int, level: float = ALPHA) -> tuple[float, float]:
    """Two-sided interval of a share that covers at least 1 - level whatever n (Clopper and Pearson 1934).

    2 of 3 give 0.09 to 0.99 and 3 of 3 give 0.29 to 1, so neither says that anything was lost or found.
    """
    return 1 - upper_limit(n - successes, n, level / 2), upper_limit(successes, n, level / 2)


def upper_limit(successes: int, n: int, level: float) -> float:
    """Largest share with which so few successes, or fewer, have a probability of `level`; exact."""
    if successes == n:
        return 1.0
    return falling_root(lambda share: binomial_at_most(successes, n, share) - level, 0.0, 1.0)


def pass_at_k(correct_counts: Sequence[int], samples: int, k: int) -> float:
    """Mean probability that at least one of k answers is right; k = 1 is the mean score.

    Source: Chen et al., arXiv 2107.03374, equation 1: 1 - C(samples - correct, k) / C(samples, k), which has no bias,
    unlike 1 - (1 - mean)^k.

    Args:
        correct_counts: right answers per item, 0 ... samples.
        samples: answers per item.
        k: answers that one may try, 1 ... samples.

    Raises:
        ValueError: no items, or more tries than answers: what was never sampled can't be estimated without a bias.
    """
    if not 1 <= k <= samples or not correct_counts:
        raise ValueError(
            f"pass@{k} of {len(correct_counts)} items with {samples} answers each: ask for k = 1 ... samples"
        )
    return fmean(1 - math.comb(samples - correct, k) / math.comb(samples, k) for correct in correct_counts)
