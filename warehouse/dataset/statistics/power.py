"""What an evaluation of n items can show, said before any of them is paid for.

All of it follows from the discordance w: the share of items that two arms answer differently. With one answer per item
the variance of a paired difference is at most w / n (Connor, Biometrics 1987, with delta^2 left out). With K answers
per item, and two arms that are equally good, what differs is sampling alone, and K answers divide its variance by K
(Miller, arXiv 2411.00640, section 3): w / (n K). Where two arms really differ item by item, more answers help less.

A verdict among m comparisons is Holm's. What it takes to be sure of one of them is planned by Bonferroni, alpha / m:
Holm is at least as kind, and just that strict to the comparison with the smallest p value.
"""

from __future__ import annotations

import math
from statistics import NormalDist

from warehouse.dataset.statistics.compare import Z_POWER, Z_TWO_SIDED
from warehouse.dataset.statistics.proportions import ALPHA


def stderr_of_difference(n: int, discordance: float, samples: int = 1) -> float:
    """Standard error of a paired difference of two equally good arms."""
    return math.sqrt(discordance / (n * samples))


def detectable(n: int, discordance: float, samples: int = 1) -> float:
    """Smallest difference seen with 80 % power at 5 %, two-sided; 0.077 for 198 items and a discordance of 0.15."""
    return (Z_TWO_SIDED + Z_POWER) * stderr_of_difference(n, discordance, samples)


def carried_margin(n: int, discordance: float, samples: int = 1, comparisons: int = 1) -> float:
    """Smallest margin at which an equally good arm is shown to be no worse, with 80 % power at 5 %, one-sided.

    `comparisons`: cells that the run compares with AR in this evaluation; each is planned at 5 % over their number.
    """
    return (one_sided_quantile(comparisons) + Z_POWER) * stderr_of_difference(n, discordance, samples)


def items_needed(margin: float, discordance: float, samples: int = 1, comparisons: int = 1) -> int:
    """Items that carry a margin: the inverse of `carried_margin`; 371 for a margin of 0.05, a discordance of 0.15."""
    return math.ceil((one_sided_quantile(comparisons) + Z_POWER) ** 2 * discordance / (margin**2 * samples))


def samples_needed(n: int, margin: float, discordance: float, comparisons: int = 1) -> int:
    """Answers per item with which n items carry a margin."""
    return math.ceil((one_sided_quantile(comparisons) + Z_POWER) ** 2 * discordance / (margin**2 * n))


def one_sided_quantile(comparisons: int = 1) -> float:
    """Normal quantile of a one-sided test at 5 % over the number of comparisons (Bonferroni); 1.645 of one.

    Raises:
        ValueError: there is no comparison to plan for.
    """
    if comparisons < 1:
        raise ValueError(f"comparisons={comparisons}: plan for at least one cell that is compared with AR")
    return NormalDist().inv_cdf(1 - ALPHA / comparisons)
