"""Statistics of a comparison between two techniques over the same items, in plain Python.

Accuracy is compared item by item: both techniques answered the same questions, so only the questions on which they
disagree say anything. Several answers per item, and several comparisons at once, are compared in
`warehouse.dataset.statistics.paired`; speed in `warehouse.dataset.statistics.visits`.
"""

from __future__ import annotations

import math
from typing import Literal

from warehouse.dataset.statistics.proportions import ALPHA, falling_root

MARGIN = 0.05
"""Accuracy that may be lost and still be called "no worse": five points, stated beside every claim."""

Z_TWO_SIDED = 1.959963984540054
"""Normal quantile of a two-sided 95 % interval."""

Z_POWER = 0.8416212335729143
"""Normal quantile of 80 % power."""

PARITY_PROMPTS = 12
"""Fewest prompts whose equal outputs are worth a claim; mtp-diffusion-h100 (docs/sources.md) used twelve."""

Conclusion = Literal["non-inferior", "worse", "inconclusive"]


def mcnemar_p(gained: int, lost: int) -> float:
    """Exact two-sided McNemar test: min(1, 2 P(Bin(gained + lost, 1/2) <= min(gained, lost))).

    It answers "is there a difference", never "is it the same" (McNemar, Psychometrika 1947).
    """
    trials = gained + lost
    tail = ways = 1  # of no hit; each further number of hits from the one before, because thousands may be discordant
    for hits in range(1, min(gained, lost) + 1):
        ways = ways * (trials - hits + 1) // hits
        tail += ways
    return min(1.0, tail / (1 << (trials - 1))) if trials else 1.0


def tango_interval(n: int, gained: int, lost: int, z: float) -> tuple[float, float]:
    """Score interval of a paired difference of proportions.

    Source: Tango, Statistics in Medicine 17 (1998) 891-908. Unlike the textbook interval it does not shrink to a point
    when no item is discordant: n identical answers still allow a difference of z^2 / (n + z^2).
    """
    delta = (gained - lost) / n
    low = falling_root(lambda x: tango_score(n, gained, lost, x) - z, -1.0, delta)
    high = falling_root(lambda x: tango_score(n, gained, lost, x) + z, delta, 1.0)
    return low, high


def tango_score(n: int, gained: int, lost: int, difference: float) -> float:
    """Tango's T of H0: the true difference is `difference`; standard normal under H0, falls as `difference` grows."""
    a = 2.0 * n
    b = -gained - lost + (2 * n - gained + lost) * difference
    c = -lost * difference * (1 - difference)
    p_lost = (math.sqrt(max(b * b - 4 * a * c, 0.0)) - b) / (2 * a)
    variance = n * (2 * p_lost + difference * (1 - difference))
    return (gained - lost - n * difference) / math.sqrt(variance) if variance > 0 else 0.0


def proportion_stderr(p: float, n: int) -> float:
    """Standard error of one arm's score, sqrt(p (1 - p) / n); it doesn't measure a difference between two arms."""
    return math.sqrt(p * (1 - p) / n)


def carries_lossless(
    parity: tuple[int, int] | None,
    control: tuple[int, int] | None,
    conclusion: str | None,
    delta: float,
    p_holm: float,
) -> bool:
    """Whether "lossless" may be printed.

    Args:
        parity: (equal, compared) greedy outputs against the baseline.
        control: the same of the baseline against itself.
        conclusion: of the paired accuracy comparison.
        delta: of the same comparison, technique minus baseline.
        p_holm: two-sided, that there is no difference, corrected for the comparisons of the run.

    Returns:
        True only when enough prompts are all token-identical, the baseline repeats itself, and accuracy is shown to be
        no worse, within the margin, and isn't shown to be lower: a real loss is one, however small.
    """
    if parity is None or control is None:
        return False
    identical = all(equal == compared >= PARITY_PROMPTS for equal, compared in (parity, control))
    is_proven_loss = delta < 0 and p_holm < ALPHA
    return identical and conclusion == "non-inferior" and not is_proven_loss


def wilson_interval(p: float, n: int) -> tuple[float, float]:
    """95 % score interval of one arm's score p over n items (Wilson 1927); it stays inside 0 ... 1."""
    z2 = Z_TWO_SIDED**2
    middle = (p + z2 / (2 * n)) / (1 + z2 / n)
    half = Z_TWO_SIDED / (1 + z2 / n) * math.sqrt(p * (1 - p) / n + z2 / (4 * n * n))
    return max(0.0, middle - half), min(1.0, middle + half)
