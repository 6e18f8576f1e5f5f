"""From figures to a verdict, and from a verdict to words that claim no more than the figures carry.

All comparisons of a sweep share one error rate (Holm).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from warehouse.dataset.statistics.compare import Z_POWER, Conclusion
from warehouse.dataset.statistics.paired import Comparison
from warehouse.dataset.statistics.power import one_sided_quantile
from warehouse.dataset.statistics.proportions import ALPHA


def holm(p_values: Sequence[float]) -> list[float]:
    """Adjusted p values, in the order given: those below 5 % are claims that are all true with 95 % probability.

    Source: Holm, Scandinavian Journal of Statistics 6 (1979) 65-70: the i-th smallest of m is multiplied by m - i + 1,
    never falls below the one before it, and stops at 1. Holds whatever the dependence; cells share their baseline and
    their items.
    """
    adjusted = [0.0] * len(p_values)
    highest = 0.0
    for rank, index in enumerate(sorted(range(len(p_values)), key=p_values.__getitem__)):
        highest = max(highest, min(1.0, p_values[index] * (len(p_values) - rank)))
        adjusted[index] = highest
    return adjusted


class Standing(NamedTuple):
    """A comparison among all others that are settled with it."""

    p_holm: float
    """Of no difference, corrected for the number of comparisons."""
    ni_p_holm: float
    """Of a loss as large as the margin, likewise."""
    comparisons: int = 1
    """How many there are, this one included."""


def conclude(comparison: Comparison, p_holm: float, ni_p_holm: float) -> Conclusion:
    """The verdict, at 5 % over all comparisons whose p values were adjusted together.

    No worse within the margin goes before worse: a loss that is real but smaller than the margin is "non-inferior",
    and `wording` says both.
    """
    if ni_p_holm < ALPHA:
        return "non-inferior"
    return "worse" if p_holm < ALPHA and comparison.delta < 0 else "inconclusive"


def n_needed(comparison: Comparison, conclusion: Conclusion, comparisons: int = 1) -> int | None:
    """Items that would show an equally good technique to be no worse, with 80 % power, at the spread seen.

    (z_(1 - 0.05 / comparisons) + z_0.8)^2 variance / margin^2, as in `power.items_needed`; the variance is the
    comparison's cautious one.

    Returns:
        None where there is a verdict, or n is as large: then it isn't items that are missing.
    """
    needed = math.ceil((one_sided_quantile(comparisons) + Z_POWER) ** 2 * comparison.variance / comparison.margin**2)
    return None if conclusion != "inconclusive" or needed <= comparison.n else needed


def wording(comparison: Comparison, conclusion: Conclusion, standing: Standing) -> str:
    """The comparison in words, in points of score.

    "Equal" needs both bounds within the margin. The upper one is not corrected for the number of comparisons: it only
    keeps a gain from being called equality.
    """
    size, margin = f"n={comparison.n}", _points(comparison.margin)
    if comparison.samples > 1:
        size += f" with {comparison.samples} answers each"
    if conclusion == "inconclusive":
        return _undecided(comparison, standing, size)
    if conclusion == "worse":
        return f"{_change(comparison)}, {size})"
    p_holm, is_equal = standing.p_holm, comparison.bound_hi < comparison.margin
    if p_holm < ALPHA and is_equal:
        return f"{_change(comparison)}), which is within ±{margin} points ({size})"
    if p_holm < ALPHA and comparison.delta < 0:
        return f"{_change(comparison)}), which is less than {margin} points ({size})"
    if p_holm < ALPHA:
        return f"{_change(comparison)}, {size})"
    claim = f"equal within ±{margin} points" if is_equal else f"no worse within {margin} points"
    return f"{claim} ({size}, one-sided 95 %)"


def _undecided(comparison: Comparison, standing: Standing, size: str) -> str:
    """Why there is no verdict: what took it back, and how many items are missing, as far as items are."""
    why = []
    if comparison.ni_p < ALPHA:
        why.append("it holds alone, not beside all the other comparisons")
    needed = n_needed(comparison, "inconclusive", standing.comparisons)
    if needed is not None:
        beside = f" as one of {standing.comparisons} comparisons" if standing.comparisons > 1 else ""
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
