"""A technique against the baseline over the same items, and words that claim no more than the figures support.

Both techniques answered the same questions, so only the questions on which they disagree say anything. The item is what
is compared and what counts: d_i = mean score of the technique on item i minus the baseline's. Two ways lead from the
d_i to a verdict, and the data decide which:

- Every d_i is -1, 0 or 1 (one right-or-wrong answer per item): exact McNemar test, Tango's interval, Tango's score test
  at -margin.

- Otherwise the items are the clusters. The standard error of the mean is sd(d) / sqrt(n), however many answers each
  item has (Miller, arXiv 2411.00640, sections 2.2 and 4). Student's t gives both interval and p values, so that they
  never contradict each other.

  Without a correction the second way errs too often where a few items are wholly lost. Samples that happen to miss them
  show neither the loss nor its spread. In 8 % of simulated evaluations of 198 items, instead of 5 %, a loss as large as
  the margin was called none. So every bound is computed as if one more item had been asked that wholly contradicts it.
  Its d is -1 for the lower bound and 1 for the upper one. That keeps the error below 5 % from 50 items on, and costs
  1 / n of the margin. As Tango's interval does, it leaves room for a difference where no item differs.

All comparisons of a sweep share one error rate (Holm).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import NormalDist
from typing import Literal, NamedTuple

from warehouse.dataset.statistics.proportions import ALPHA, Z_POWER, Z_TWO_SIDED, falling_root, one_sided_quantile
from warehouse.dataset.statistics.quantiles import interval, resampled_means_of_few
from warehouse.ledger.formulas import student_quantile, student_tail

MARGIN = 0.05  # accuracy that may be lost and still be called "no worse": five points, stated with every claim

PARITY_PROMPTS = 12
"""Fewest prompts whose equal outputs are worth a claim; mtp-diffusion-h100 (docs/sources.md) used twelve."""

Conclusion = Literal["non-inferior", "worse", "inconclusive"]


def mcnemar_p(gained: int, lost: int) -> float:
    """Exact two-sided McNemar test (Psychometrika 1947): min(1, 2 P(Bin(gained + lost, 1/2) <= the fewer))."""
    trials = gained + lost
    tail = ways = 1  # of no hit; each further number of hits from the one before, because thousands may be discordant
    for hits in range(1, min(gained, lost) + 1):
        ways = ways * (trials - hits + 1) // hits
        tail += ways
    return min(1.0, tail / (1 << (trials - 1))) if trials else 1.0


def tango_interval(n: int, gained: int, lost: int, z: float) -> tuple[float, float]:
    """Score interval of a paired difference of proportions (Tango, Statistics in Medicine 17 (1998) 891-908).

    It does not shrink to a point where no item is discordant: n identical answers still allow z^2 / (n + z^2).
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


def carries_lossless(
    parity: tuple[int, int] | None, control: tuple[int, int] | None, conclusion: str | None, delta: float, p_holm: float
) -> bool:
    """Whether "lossless" may be printed: enough prompts are token-identical, the baseline repeats itself, no worse.

    `parity` counts greedy outputs against the baseline as (equal, compared); `control` those of the baseline against
    itself. The others are of the paired comparison: `delta` is technique minus baseline, and `p_holm` is two-sided. A
    real loss is a loss, however small, so one that is shown bars the word.
    """
    if parity is None or control is None:
        return False
    identical = all(equal == compared >= PARITY_PROMPTS for equal, compared in (parity, control))
    is_proven_loss = delta < 0 and p_holm < ALPHA
    return identical and conclusion == "non-inferior" and not is_proven_loss


_DIGITS = 9  # decimals of a d_i that count: 1/3 + 1/3 and 2/3 are one value


class Comparison(NamedTuple):
    """Differences are technique minus baseline, in 0 ... 1; intervals are of 95 %, two-sided, bounds one-sided."""

    n: int
    samples: int
    gained: int  # items on which the technique scores higher
    lost: int  # items on which the baseline scores higher
    delta: float
    delta_lo: float
    delta_hi: float
    boot_lo: float | None
    """Percentile bootstrap over items; a point where no item differs, which is why no claim rests on it."""
    boot_hi: float | None
    p: float  # two-sided: of no difference
    margin: float
    bound_lo: float  # one-sided lower bound; above -margin: no worse
    bound_hi: float
    """One-sided upper bound; below margin as well: equal within it (two one-sided tests, Schuirmann 1987)."""
    ni_p: float  # one-sided: of a loss as large as the margin
    mde: float  # smallest difference that so many items show with 80 % power at 5 %, two-sided
    variance: float  # of one item's d, as planning takes it: (sum d^2 + 1) / (n + 2), never 0 (Agresti and Min 2005)


def compare(
    baseline: Sequence[float], technique: Sequence[float], samples: int, margin: float, identity: str | None
) -> Comparison:
    """Paired comparison of two arms by their scores per item, 0 ... 1, means over its answers, in the same order.

    The bootstrap's seed follows from `identity`; None: without a bootstrap. ValueError: no items, not the same number
    of them, or no margin.
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
        **(_by_counts if all(d in (-1, 0, 1) for d in differences) else _by_means)(differences, margin),
    )


def _by_counts(differences: Sequence[float], margin: float) -> dict[str, float]:
    n, gained, lost, normal = len(differences), differences.count(1), differences.count(-1), NormalDist()
    delta_lo, delta_hi = tango_interval(n, gained, lost, normal.inv_cdf(1 - ALPHA / 2))
    bound_lo, bound_hi = tango_interval(n, gained, lost, normal.inv_cdf(1 - ALPHA))
    return {
        "delta_lo": delta_lo,
        "delta_hi": delta_hi,
        "bound_lo": bound_lo,
        "bound_hi": bound_hi,
        "p": mcnemar_p(gained, lost),
        "ni_p": normal.cdf(-tango_score(n, gained, lost, -margin)),
    }


def _by_means(differences: Sequence[float], margin: float) -> dict[str, float]:
    n = len(differences)  # with the item that speaks against it: n + 1 values, n degrees of freedom
    lower, lower_error = _mean_and_error([*differences, -1.0])
    upper, upper_error = _mean_and_error([*differences, 1.0])
    two_sided, one_sided = student_quantile(ALPHA / 2, n), student_quantile(ALPHA, n)
    clear_of_zero = max(lower / lower_error, -upper / upper_error, 0.0)
    return {
        "delta_lo": max(-1.0, lower - two_sided * lower_error),
        "delta_hi": min(1.0, upper + two_sided * upper_error),
        "bound_lo": max(-1.0, lower - one_sided * lower_error),
        "bound_hi": min(1.0, upper + one_sided * upper_error),
        "p": 2 * student_tail(clear_of_zero, n),
        "ni_p": student_tail((lower + margin) / lower_error, n),
    }


def _mean_and_error(values: Sequence[float]) -> tuple[float, float]:
    mean = math.fsum(values) / len(values)
    squares = math.fsum((value - mean) ** 2 for value in values)
    return mean, math.sqrt(squares / (len(values) - 1) / len(values))


def conclude(comparison: Comparison, p_holm: float, ni_p_holm: float) -> Conclusion:
    """The verdict, at 5 % over all comparisons whose p values were adjusted together.

    A loss that is real but smaller than the margin is "non-inferior", and `wording` says both.
    """
    if ni_p_holm < ALPHA:
        return "non-inferior"
    return "worse" if p_holm < ALPHA and comparison.delta < 0 else "inconclusive"


def n_needed(comparison: Comparison, conclusion: Conclusion, comparisons: int = 1) -> int | None:
    """Items that would show an equally good technique to be no worse, with 80 % power, at the spread seen.

    As in `items_needed`, with the comparison's cautious variance. None: there is a verdict, or n is as large.
    """
    needed = math.ceil((one_sided_quantile(comparisons) + Z_POWER) ** 2 * comparison.variance / comparison.margin**2)
    return None if conclusion != "inconclusive" or needed <= comparison.n else needed


def wording(comparison: Comparison, conclusion: Conclusion, p_holm: float, comparisons: int = 1) -> str:
    """The comparison in words, in points of score; one of so many that were settled together.

    "Equal" needs both bounds within the margin. The upper one is not corrected: it only keeps a gain from that word.
    """
    size, margin = f"n={comparison.n}", _points(comparison.margin)
    if comparison.samples > 1:
        size += f" with {comparison.samples} answers each"
    if conclusion == "inconclusive":
        return _undecided(comparison, comparisons, size)
    if conclusion == "worse":
        return f"{_change(comparison)}, {size})"
    is_equal = comparison.bound_hi < comparison.margin
    if p_holm < ALPHA and is_equal:
        return f"{_change(comparison)}), which is within ±{margin} points ({size})"
    if p_holm < ALPHA and comparison.delta < 0:
        return f"{_change(comparison)}), which is less than {margin} points ({size})"
    if p_holm < ALPHA:
        return f"{_change(comparison)}, {size})"
    claim = f"equal within ±{margin} points" if is_equal else f"no worse within {margin} points"
    return f"{claim} ({size}, one-sided 95 %)"


def _undecided(comparison: Comparison, comparisons: int, size: str) -> str:
    """Why there is no verdict: what took it back, and how many items are missing, as far as items are."""
    why = []
    if comparison.ni_p < ALPHA:
        why.append("it holds alone, not beside all the other comparisons")
    needed = n_needed(comparison, "inconclusive", comparisons)
    if needed is not None:
        beside = f" as one of {comparisons} comparisons" if comparisons > 1 else ""
        why.append(f"needs about {needed} items{beside}")
    if why:
        return f"cannot tell: {'; '.join(why)} ({size})"
    low, high = _points(comparison.delta_lo, "+"), _points(comparison.delta_hi, "+")
    lost = _points(comparison.delta, "+")
    return f"cannot tell: {lost} points (95 % interval {low} to {high}, {size}) is too near the margin"


def _change(comparison: Comparison) -> str:
    """`worse by 20.2 points (95 % interval 12.9 to 27.4`, still open for n; a loss is counted as positive."""
    delta, low, high = comparison.delta, comparison.delta_lo, comparison.delta_hi
    word, low, high = ("worse", -high, -low) if delta < 0 else ("better", low, high)
    return f"{word} by {_points(abs(delta))} points (95 % interval {_points(low)} to {_points(high)}"


def _points(share: float, sign: str = "-") -> str:
    return f"{100 * share:{sign}z.1f}"
