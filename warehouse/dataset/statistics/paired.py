"""A technique against the baseline over the same items, with one or several answers per item.

The item is what is compared and what counts: d_i = mean score of the technique on item i minus the baseline's. Two ways
lead from the d_i to a verdict, and the data say which:

- every d_i is -1, 0 or 1 (one right-or-wrong answer per item): exact McNemar test, Tango's interval, Tango's score test
  at -margin.
- otherwise the items are the clusters: the standard error of the mean is sd(d) / sqrt(n), however many answers each has
  (Miller, arXiv 2411.00640, sections 2.2 and 4), and Student's t gives interval and p values alike, so that they never
  contradict each other. As it stands that errs too often where a few items are wholly lost, because samples that
  happen to miss them show neither the loss nor its spread: a loss as large as the margin was called none in 8 % of
  simulated evaluations of 198 items, instead of 5 %. So every bound is computed as if one more item had been asked that
  speaks against it wholly: d = -1 for the lower one, 1 for the upper one. That keeps the error below 5 % from 50 items
  on, costs 1 / n of the margin, and, as Tango's does, leaves room for a difference where no item differs.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import NormalDist
from typing import NamedTuple

from warehouse.dataset.statistics.bootstrap import interval, resampled_means_of_few
from warehouse.dataset.statistics.compare import Z_POWER, Z_TWO_SIDED, mcnemar_p, tango_interval, tango_score
from warehouse.dataset.statistics.proportions import ALPHA
from warehouse.ledger.formulas.beta import student_quantile, student_tail

_DIGITS = 9
"""Decimals of a d_i that count: 1/3 + 1/3 and 2/3 are one value."""


class Comparison(NamedTuple):
    """Differences are technique minus baseline, in 0 ... 1; intervals are of 95 %, two-sided, bounds one-sided."""

    n: int
    samples: int
    gained: int
    """Items on which the technique scores higher."""
    lost: int
    """Items on which the baseline scores higher."""
    delta: float
    delta_lo: float
    delta_hi: float
    boot_lo: float | None
    """Percentile bootstrap over items; a point where no item differs, which is why no claim rests on it."""
    boot_hi: float | None
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


class Tested(NamedTuple):
    """What the differences say, by whichever way they can be tested."""

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
    identity: str | None,
) -> Comparison:
    """Paired comparison of two arms.

    Args:
        baseline: score per item, 0 ... 1: the mean over its answers.
        technique: the same items in the same order.
        samples: answers per item.
        margin: loss that still counts as none.
        identity: names the comparison; the bootstrap's seed follows from it. None: without a bootstrap.

    Raises:
        ValueError: no items, not the same number of them, or no margin.
    """
    if not baseline or margin <= 0:
        raise ValueError(f"{len(baseline)} items and a margin of {margin:g} compare nothing: both must be above 0")
    differences = [round(new - old, _DIGITS) for old, new in zip(baseline, technique, strict=True)]
    n = len(differences)
    boot_lo, boot_hi = interval(resampled_means_of_few(differences, identity)) if identity is not None else (None, None)
    variance = (math.fsum(d * d for d in differences) + 1) / (n + 2)
    return Comparison(
        n=n,
        samples=samples,
        gained=sum(d > 0 for d in differences),
        lost=sum(d < 0 for d in differences),
        delta=math.fsum(differences) / n,
        boot_lo=boot_lo,
        boot_hi=boot_hi,
        margin=margin,
        mde=(Z_TWO_SIDED + Z_POWER) * math.sqrt(variance / n),
        variance=variance,
        **tested(differences, margin)._asdict(),
    )


def tested(differences: list[float], margin: float) -> Tested:
    """Intervals and p values of the mean difference; the module's docstring says which way is taken when."""
    if all(d in (-1, 0, 1) for d in differences):
        gained, lost = differences.count(1), differences.count(-1)
        return _by_counts(len(differences), gained, lost, margin)
    return _by_means(differences, margin)


def _by_counts(n: int, gained: int, lost: int, margin: float) -> Tested:
    normal = NormalDist()
    return Tested(
        *tango_interval(n, gained, lost, normal.inv_cdf(1 - ALPHA / 2)),
        *tango_interval(n, gained, lost, normal.inv_cdf(1 - ALPHA)),
        p=mcnemar_p(gained, lost),
        ni_p=normal.cdf(-tango_score(n, gained, lost, -margin)),
    )


def _by_means(differences: Sequence[float], margin: float) -> Tested:
    n = len(differences)  # with the item that speaks against it: n + 1 values, n degrees of freedom
    lower, lower_error = _mean_and_error([*differences, -1.0])
    upper, upper_error = _mean_and_error([*differences, 1.0])
    two_sided, one_sided = student_quantile(ALPHA / 2, n), student_quantile(ALPHA, n)
    clear_of_zero = max(lower / lower_error, -upper / upper_error, 0.0)
    return Tested(
        max(-1.0, lower - two_sided * lower_error),
        min(1.0, upper + two_sided * upper_error),
        max(-1.0, lower - one_sided * lower_error),
        min(1.0, upper + one_sided * upper_error),
        p=2 * student_tail(clear_of_zero, n),
        ni_p=student_tail((lower + margin) / lower_error, n),
    )


def _mean_and_error(values: Sequence[float]) -> tuple[float, float]:
    """Mean and its standard error."""
    mean = math.fsum(values) / len(values)
    squares = math.fsum((value - mean) ** 2 for value in values)
    return mean, math.sqrt(squares / (len(values) - 1) / len(values))
