"""Shares: intervals of few trials, several answers per item, several comparisons, and what n items can show.

What can be shown is computed before any item is paid for, from the discordance w: the share of items that two arms
answer differently. With one answer per item the variance of a paired difference is at most w / n (Connor, Biometrics
1987, with delta^2 left out); K answers divide it by K where equally good arms differ by sampling alone (Miller, arXiv
2411.00640, section 3), and by less where they really differ item by item.

A verdict among m comparisons is Holm's; what it takes to be sure of one is planned by Bonferroni, alpha / m.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from statistics import NormalDist, fmean

from warehouse.ledger.formulas import binomial_at_most

ALPHA = 0.05  # error that a claim may have, before it is divided among comparisons
Z_TWO_SIDED = 1.959963984540054  # normal quantile of a two-sided 95 % interval
Z_POWER = 0.8416212335729143  # normal quantile of 80 % power


def holm(p_values: Sequence[float]) -> list[float]:
    """Adjusted p values, in the order given: those below 5 % are claims that are all true with 95 % probability.

    Source: Holm, Scandinavian Journal of Statistics 6 (1979) 65-70. The i-th smallest of m is multiplied by m - i + 1,
    never falls below the one before it, and stops at 1, whatever the dependence.
    """
    adjusted = [0.0] * len(p_values)
    highest = 0.0
    for rank, index in enumerate(sorted(range(len(p_values)), key=p_values.__getitem__)):
        highest = max(highest, min(1.0, p_values[index] * (len(p_values) - rank)))
        adjusted[index] = highest
    return adjusted


def falling_root(falling: Callable[[float], float], low: float, high: float) -> float:
    """Where a falling function crosses zero between `low` and `high`, to 2^-60 of their distance."""
    for _ in range(60):
        middle = (low + high) / 2
        if falling(middle) > 0:
            low = middle
        else:
            high = middle
    return (low + high) / 2


def proportion_stderr(p: float, n: int) -> float:
    """Standard error of one arm's score, sqrt(p (1 - p) / n); it doesn't measure a difference between two arms."""
    return math.sqrt(p * (1 - p) / n)


def wilson_interval(p: float, n: int) -> tuple[float, float]:
    """95 % score interval of one arm's score p over n items (Wilson 1927); it stays inside 0 ... 1."""
    z2 = Z_TWO_SIDED**2
    middle = (p + z2 / (2 * n)) / (1 + z2 / n)
    half = Z_TWO_SIDED / (1 + z2 / n) * math.sqrt(p * (1 - p) / n + z2 / (4 * n * n))
    return max(0.0, middle - half), min(1.0, middle + half)


def exact_interval(successes: int, n: int, level: float = ALPHA) -> tuple[float, float]:
    """Two-sided interval of a share that covers at least 1 - level whatever n (Clopper and Pearson 1934)."""
    return 1 - upper_limit(n - successes, n, level / 2), upper_limit(successes, n, level / 2)


def upper_limit(successes: int, n: int, level: float) -> float:
    """Largest share with which so few successes, or fewer, have a probability of `level`; exact."""
    if successes == n:
        return 1.0
    return falling_root(lambda share: binomial_at_most(successes, n, share) - level, 0.0, 1.0)


def pass_at_k(correct_counts: Sequence[int], samples: int, k: int) -> float:
    """Mean probability that at least one of k answers is right; k = 1 is the mean score.

    Source: Chen et al., arXiv 2107.03374, equation 1: 1 - C(samples - correct, k) / C(samples, k), which has no bias.
    ValueError: no items, or more tries than answers.
    """
    if not 1 <= k <= samples or not correct_counts:
        raise ValueError(
            f"pass@{k} of {len(correct_counts)} items with {samples} answers each: ask for k = 1 ... samples"
        )
    return fmean(1 - math.comb(samples - correct, k) / math.comb(samples, k) for correct in correct_counts)


def stderr_of_difference(n: int, discordance: float, samples: int = 1) -> float:
    """Standard error of a paired difference of two equally good arms."""
    return math.sqrt(discordance / (n * samples))


def detectable(n: int, discordance: float, samples: int = 1) -> float:
    """Smallest difference seen with 80 % power at 5 %, two-sided; 0.077 for 198 items and a discordance of 0.15."""
    return (Z_TWO_SIDED + Z_POWER) * stderr_of_difference(n, discordance, samples)


def carried_margin(n: int, discordance: float, samples: int = 1, comparisons: int = 1) -> float:
    """Smallest margin at which an equally good arm is shown no worse, with 80 % power at 5 % / `comparisons`."""
    return (one_sided_quantile(comparisons) + Z_POWER) * stderr_of_difference(n, discordance, samples)


def items_needed(margin: float, discordance: float, samples: int = 1, comparisons: int = 1) -> int:
    """Items that support a margin: the inverse of `carried_margin`; 371 for a margin of 0.05, a discordance of 0.15."""
    return math.ceil((one_sided_quantile(comparisons) + Z_POWER) ** 2 * discordance / (margin**2 * samples))


def samples_needed(n: int, margin: float, discordance: float, comparisons: int = 1) -> int:
    """Answers per item with which n items support a margin."""
    return math.ceil((one_sided_quantile(comparisons) + Z_POWER) ** 2 * discordance / (margin**2 * n))


def one_sided_quantile(comparisons: int = 1) -> float:
    """Normal quantile of a one-sided test at 5 % over the comparisons (Bonferroni); ValueError: there are none."""
    if comparisons < 1:
        raise ValueError(f"comparisons={comparisons}: plan for at least one cell that is compared with AR")
    return NormalDist().inv_cdf(1 - ALPHA / comparisons)
