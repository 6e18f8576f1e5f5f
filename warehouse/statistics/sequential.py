"""Interim looks: an evaluation may end early where the verdict is clear, without erring more often than it says.

The 5 % are spent over the looks by the O'Brien-Fleming type spending function of Lan and DeMets (Biometrika 70 (1983)
659-663): very little early, almost all at the end. The level of each look is exact for tests whose increments are
independent and normal (Armitage, McPherson and Rowe 1969; Jennison and Turnbull 2000, chapter 19); how well paired
right-or-wrong answers keep to it is simulated in bench/sequential_errors.py.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from statistics import NormalDist
from typing import NamedTuple

from warehouse.statistics.compare import Conclusion
from warehouse.statistics.conclude import conclude
from warehouse.statistics.paired import Comparison
from warehouse.statistics.proportions import ALPHA
from warehouse.statistics.roots import falling_root

_NORMAL = NormalDist()

_STEPS = 100
"""Simpson intervals over the values at which a look goes on; twelve times as many change the fifth decimal."""

_LOWEST = -8.0
"""Standardized value below which a path has no probability worth counting."""


def spent(look: float, alpha: float) -> float:
    """Error spent up to this share of the items: 2 - 2 Phi(z_(alpha/2) / sqrt(look))."""
    return 2 - 2 * _NORMAL.cdf(_NORMAL.inv_cdf(1 - alpha / 2) / math.sqrt(look))


def levels(looks: Sequence[float], alpha: float = ALPHA) -> list[float]:
    """Nominal level at each look, for two-sided p values of no difference and one-sided ones of a loss of the margin.

    Of the two-sided test each side spends half of `spent`, exactly. A one-sided test that spends all of it has slightly
    higher levels after the first (less extreme boundaries are more often crossed twice, and that counts once), so these
    are on the safe side for it.

    Args:
        looks: shares of the items, rising to 1.
        alpha: error over all looks.
    """
    return [2 * _NORMAL.cdf(-bound) for bound in boundaries(looks, [spent(look, alpha) / 2 for look in looks])]


def boundaries(looks: Sequence[float], one_sided: Sequence[float]) -> list[float]:
    """Standardized values above which a path ends, so that it has ended up to look k with probability one_sided[k].

    A path is the score z sqrt(look): a sum whose increments are normal with the variance of the new share of items.
    """
    on = _Paths([0.0], [1.0])
    bounds = []
    for before, look, old, new in zip([0.0, *looks], looks, [0.0, *one_sided], one_sided, strict=False):
        step = NormalDist(0.0, math.sqrt(look - before))
        bounds.append(falling_root(partial(_excess, on, step, math.sqrt(look), new - old), 0.0, -_LOWEST))
        on = _going_on(on, step, math.sqrt(look), bounds[-1])
    return bounds


def adjusted_p(p: float, level: float, alpha: float = ALPHA) -> float:
    """A look's p value on the scale of `alpha`: below alpha exactly where p is below the look's level."""
    return min(1.0, p * alpha / level)


def stop(comparison: Comparison, level: float, comparisons: int = 1) -> Conclusion | None:
    """The verdict that ends an evaluation at a look; None: go on. That it looks hopeless is no reason to end.

    Args:
        comparison: of the items answered so far: the first ones of an order that was drawn before.
        level: of this look, from `levels`.
        comparisons: how many the run makes; more than 1 asks for a verdict that Holm's correction can't take back.
    """
    p, ni_p = (min(1.0, adjusted_p(each, level) * comparisons) for each in (comparison.p, comparison.ni_p))
    found = conclude(comparison, p, ni_p)
    return None if found == "inconclusive" else found


class _Paths(NamedTuple):
    """Paths that still go on: where they are, and how much probability is there."""

    points: list[float]
    masses: list[float]


def _excess(on: _Paths, step: NormalDist, scale: float, increment: float, bound: float) -> float:
    """Probability to end at this boundary, less what it should be; falls as the boundary rises."""
    ends = (mass * step.cdf(x - bound * scale) for x, mass in zip(on.points, on.masses, strict=True))
    return math.fsum(ends) - increment


def _going_on(on: _Paths, step: NormalDist, scale: float, bound: float) -> _Paths:
    """The paths below a boundary after one more step, integrated by Simpson's rule."""
    width = (bound - _LOWEST) * scale / _STEPS
    points = [_LOWEST * scale + width * i for i in range(_STEPS + 1)]
    weights = [width / 3 * (1 if i in (0, _STEPS) else 4 if i % 2 else 2) for i in range(_STEPS + 1)]
    masses = [
        weight * math.fsum(mass * step.pdf(y - x) for x, mass in zip(on.points, on.masses, strict=True))
        for y, weight in zip(points, weights, strict=True)
    ]
    return _Paths(points, masses)
