"""A technique against the baseline over the same items, with one or several answers per item.

The item is what is compared and what counts: d_i = mean score of the technique on item i minus the baseline's. Three
ways lead from the d_i to a verdict, and the data say which:

- every d_i is -1, 0 or 1 (one right-or-wrong answer per item): exact McNemar test, Tango's interval, Tango's score test
  at -margin.
- otherwise: items are the clusters, so the standard error of the mean is sd(d) / sqrt(n) however many answers each has
  (Miller, arXiv 2411.00640, sections 2.2 and 4), and (mean - d0) se^-1 is Student's t with n - 1 degrees of freedom.
  The p value is of the same t as the interval, so the two never contradict each other; a permutation test of 12 000
  items would say the same in 10 000 times the work.
- otherwise, but on fewer than `FEW` items do the arms differ: a mean of so few is not normal. Then gains and losses are
  bounded one by one, each as if it weighed a whole item (exact binomial limits; the sign test): wide, but never wrong.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import NormalDist
from typing import NamedTuple

from warehouse.statistics.beta import binomial_at_most, student_quantile, student_tail
from warehouse.statistics.bootstrap import interval, resampled_means_of_few
from warehouse.statistics.compare import Z_POWER, Z_TWO_SIDED, mcnemar_p, tango_interval, tango_score
from warehouse.statistics.proportions import ALPHA, upper_limit

FEW = 20
"""Items that must differ before their mean is taken for normal; bench/sequential_errors.py simulates the errors."""

_DIGITS = 9
"""Decimals of a d_i that count: 1/3 + 1/3 and 2/3 are one value."""


class Comparison(NamedTuple):
    """Differences are technique minus baseline, in 0 ... 1; `level` of 0.05 means 95 % two-sided, or one-sided."""

    n: int
    samples: int
    gained: int
    """Items on which the technique scores higher."""
    lost: int
    """Items on which the baseline scores higher."""
    delta: float
    delta_lo: float
    delta_hi: float
    boot_lo: float
    """Percentile bootstrap over items; a point where no item differs, which is why no claim rests on it."""
    boot_hi: float
    p: float
    """Two-sided: of no difference."""
    margin: float
    bound_lo: float
    """One-sided lower bound; above -margin: no worse."""
    bound_hi: float
    """One-sided upper bound; below margin as well: equal within it (two one-sided tests, Schuirmann 1987)."""
    ni_p: float
    """One-sided: of a loss as large as the margin."""
    mde: float
    """Smallest difference that so many items show with 80 % power at 5 %, two-sided."""
    variance: float
    """Of one item's d, as planning takes it: (sum d^2 + 1) / (n + 2), never 0 (Agresti and Min 2005)."""


class _Tested(NamedTuple):
    delta_lo: float
    delta_hi: float
    bound_lo: float
    bound_hi: float
    p: float
    ni_p: float


def compare(
    baseline: Sequence[float],
    technique: Sequence[float],
    samples: int,
    margin: float,
    identity: str,
    level: float = ALPHA,
) -> Comparison:
    """Paired comparison of two arms.

    Args:
        baseline: score per item, 0 ... 1: the mean over its answers.
        technique: the same items in the same order.
        samples: answers per item.
        margin: loss that still counts as none.
        identity: names the comparison; the bootstrap's seed follows from it.
        level: nominal level of the intervals and bounds. An interim look's level (`sequential.levels`) makes them hold
            over all looks together with 95 %: repeated confidence intervals, Jennison and Turnbull, Journal of the
            Royal Statistical Society B 51 (1989) 305-361. p values stay as they are.

    Raises:
        ValueError: no items, not the same number of them, or no margin.
    """
    if not baseline or margin <= 0:
        raise ValueError(f"{len(baseline)} items and a margin of {margin:g} compare nothing: both must be above 0")
    differences = [round(new - old, _DIGITS) for old, new in zip(baseline, technique, strict=True)]
    n = len(differences)
    gained, lost = sum(d > 0 for d in differences), sum(d < 0 for d in differences)
    if all(d in (-1, 0, 1) for d in differences):
        tested = _by_counts(n, gained, lost, margin, level)
    elif gained + lost >= FEW:
        tested = _by_means(differences, margin, level)
    else:
        tested = _by_limits(n, gained, lost, margin, level)
    boot_lo, boot_hi = interval(resampled_means_of_few(differences, identity))
    variance = (math.fsum(d * d for d in differences) + 1) / (n + 2)
    return Comparison(
        n=n,
        samples=samples,
        gained=gained,
        lost=lost,
        delta=math.fsum(differences) / n,
        boot_lo=boot_lo,
        boot_hi=boot_hi,
        margin=margin,
        mde=(Z_TWO_SIDED + Z_POWER) * math.sqrt(variance / n),
        variance=variance,
        **tested._asdict(),
    )


def compare_counts(n: int, gained: int, lost: int, margin: float, identity: str, level: float = ALPHA) -> Comparison:
    """The same of one right-or-wrong answer per item, from its counts."""
    technique = [1.0] * gained + [0.0] * (n - gained)
    baseline = [0.0] * gained + [1.0] * lost + [0.0] * (n - gained - lost)
    return compare(baseline, technique, 1, margin, identity, level)


def _by_counts(n: int, gained: int, lost: int, margin: float, level: float) -> _Tested:
    normal = NormalDist()
    return _Tested(
        *tango_interval(n, gained, lost, normal.inv_cdf(1 - level / 2)),
        *tango_interval(n, gained, lost, normal.inv_cdf(1 - level)),
        p=mcnemar_p(gained, lost),
        ni_p=normal.cdf(-tango_score(n, gained, lost, -margin)),
    )


def _by_means(differences: Sequence[float], margin: float, level: float) -> _Tested:
    n = len(differences)
    delta = math.fsum(differences) / n
    squares = math.fsum((d - delta) ** 2 for d in differences)
    # where all d are nearly equal no spread is seen; one item that is wholly off could always have been missed
    error = math.sqrt(max(squares, 1.0) / (n - 1) / n)
    two_sided, one_sided = student_quantile(level / 2, n - 1) * error, student_quantile(level, n - 1) * error
    return _Tested(
        delta - two_sided,
        delta + two_sided,
        delta - one_sided,
        delta + one_sided,
        p=min(1.0, 2 * student_tail(abs(delta) / error, n - 1)),
        ni_p=student_tail((delta + margin) / error, n - 1),
    )


def _by_limits(n: int, gained: int, lost: int, margin: float, level: float) -> _Tested:
    """Exact: a true loss of the margin means that the share of items that lose is at least the margin."""
    return _Tested(
        -upper_limit(lost, n, level / 2),
        upper_limit(gained, n, level / 2),
        -upper_limit(lost, n, level),
        upper_limit(gained, n, level),
        p=mcnemar_p(gained, lost),
        ni_p=binomial_at_most(lost, n, margin),
    )
