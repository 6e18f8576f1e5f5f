"""How a run's visits differ: the variance from start to start, and the drift of the machine, pooled over its arms.

The log rate of repeat r in visit v of arm a is arm + drift * position + start(v) + repeat(v, r). An interval over
repeats alone says how still one start was, nothing of the next one; so the start component is estimated from visits of
one arm and pooled over the run's arms, which is what makes two starts of each arm enough.

The start variance is a mean square less what repeats bring into it, floored at 0. Its uncertainty is that of the mean
square, not of the small difference, as simulation decided (bench/coverage.py): with the difference's own
(Satterthwaite's formula on the floored value) intervals cover 89 to 92 % where starts and repeats scatter alike.
Unfloored, or with that uncertainty kept where the floor holds, they cover 99 % and more where starts don't differ. An
arm's repeat variance is moderated by the others' (`warehouse.dataset.statistics.repeats`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from warehouse.dataset.statistics.repeats import Repeats, moderated
from warehouse.dataset.statistics.visits.arms import Arm, is_placed, mean_of, middle_of, scatter_of

FEWEST_FOR_DRIFT = 3
"""Differences within arms from which a drift is fitted; it costs one, and two must be left for the starts."""

FEWEST_REPEATS, MOST_REPEATS = 3, 30
"""Bounds of `best_repeats`: below, a visit's scatter is not known; above, a machine does not hold still."""

_MORE_OFF, _MOST_OFF = 0.03, 0.3
"""Of the repeats' part, what more is taken off the mean square of visits: per degree of freedom, and at most.

Floored at 0, a difference that is 0 on average is positive on average: more taken off keeps intervals of starts that do
not differ from covering more than 97 %. With few degrees there is little to spare: where starts scatter half as much as
repeats, an estimate of 0 then comes often, and 93 % would not be held."""


class Within(NamedTuple):
    """How an arm's visits differ from one another."""

    df: int
    """Visits less one."""
    squares: float
    """Of log rates about the arm's mean."""
    position_squares: float
    """Of positions about their mean; 0 where they are not known."""
    products: float
    """Of the two."""
    repeat_var: float
    """What repeats bring into one visit's variance."""
    repeat_df: float


class Components(NamedTuple):
    """What a run's arms say together about one condition."""

    start_var: float
    """Variance of a start's log rate."""
    start_df: float
    """0: no arm has two visits, so that nothing is known of starts."""
    drift: float
    """Log per position; 0 where it was not fitted."""
    start_error: float = 0.0
    """Half the variance of `start_var`, in the sense of Satterthwaite: sum of squared mean squares over their df."""
    mean_square: float = 0.0
    """Of visits within arms: starts and repeats together."""
    repeat_part: float = 0.0
    """What of it are repeats."""
    drift_var: float = 0.0
    """Of `drift`'s estimate."""
    repeats: tuple[Repeats, ...] = ()
    """Of every arm of the run, for moderation."""
    within: tuple[Within, ...] = ()
    """Of every arm with two visits, so that one can be held against the others."""

    @property
    def drift_share(self) -> float | None:
        """Change of a rate per position; None: there was too little to fit one."""
        return math.expm1(self.drift) if self.drift else None


def components(arms: Sequence[Arm]) -> Components:
    """Start variance and drift, pooled over a run's arms in one condition; arms of one visit help with repeats."""
    repeats = tuple(scatter_of(arm) for arm in arms)
    within = tuple(
        within_of(arm, moderated(own, repeats))
        for arm, own in zip(arms, repeats, strict=True)
        if len(arm) > 1 and own.df > 0
    )
    return pooled(within, repeats)


def best_repeats(start_var: float, repeat_var: float, start_s: float, repeat_s: float) -> float:
    """Repeats per start that give the narrowest interval for a budget of seconds.

    Source: Kalibera and Jones 2013, section 6: sqrt(cost of a start / cost of a repeat * repeat variance / start
    variance), whatever the budget.

    Args:
        start_var: variance of log rates from start to start; 0 asks for as many as are allowed.
        repeat_var: the same from repeat to repeat.
        start_s: seconds until an engine answers.
        repeat_s: seconds of one repeat.
    """
    if start_var <= 0 or repeat_s <= 0:
        return float(MOST_REPEATS)
    return min(max(math.sqrt(start_s / repeat_s * repeat_var / start_var), FEWEST_REPEATS), MOST_REPEATS)


def pooled(
    within: tuple[Within, ...], repeats: tuple[Repeats, ...], fewest_for_drift: int = FEWEST_FOR_DRIFT
) -> Components:
    """The same of arms whose differences are known.

    Args:
        within: of every arm with two visits.
        repeats: of every arm.
        fewest_for_drift: differences from which a drift is fitted.
    """
    df = sum([each.df for each in within])
    if not df:
        return Components(0.0, 0.0, 0.0, repeats=repeats)
    drift, position_squares = 0.0, sum([each.position_squares for each in within])
    if df >= fewest_for_drift and position_squares:
        drift = sum([each.products for each in within]) / position_squares
        df -= 1
    else:
        position_squares = math.inf
    squares = sum([each.squares for each in within]) - drift * sum([each.products for each in within])
    mean_square = max(squares, 0.0) / df
    parts = [(each.df - each.position_squares / position_squares) / df * each.repeat_var for each in within]
    repeat_part = sum(parts)
    taken_off = (1 + min(_MORE_OFF * df, _MOST_OFF)) * repeat_part
    error = mean_square**2 / df + sum([part**2 / each.repeat_df for part, each in zip(parts, within, strict=True)])
    return Components(
        start_var=max(mean_square - taken_off, 0.0),
        start_df=df,
        drift=drift,
        start_error=error,
        mean_square=mean_square,
        repeat_part=repeat_part,
        drift_var=mean_square / position_squares,
        repeats=repeats,
        within=within,
    )


def within_of(arm: Arm, repeats: Repeats) -> Within:
    """How the arm's visits differ, `repeats` being its moderated scatter."""
    rates = [visit.log_rate for visit in arm]
    mean = mean_of(rates)
    position_squares = products = 0.0
    if is_placed(arm):
        middle = middle_of(arm)
        aside = [(visit.position or 0.0) - middle for visit in arm]
        position_squares = sum([each * each for each in aside])
        products = sum([each * (rate - mean) for each, rate in zip(aside, rates, strict=True)])
    return Within(
        df=len(arm) - 1,
        squares=sum([(rate - mean) ** 2 for rate in rates]),
        position_squares=position_squares,
        products=products,
        repeat_var=repeats.var * mean_of([1 / len(visit.log_rates) for visit in arm]),
        repeat_df=repeats.df,
    )
