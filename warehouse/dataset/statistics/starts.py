"""Speeds and their ratios, whose unit is a *start*: of an engine, on one machine (column: visit).

Sources: Kalibera and Jones, "Rigorous Benchmarking in Reasonable Time" (ISMM 2013) and arXiv 2007.10899: levels of
repetition, the variance of each by differences of mean squares, the interval of a ratio, and how many repetitions at
which level are worth their cost. Here all of it is on logs, so that a ratio is a difference. Degrees of freedom of a
sum of mean squares: Satterthwaite, Biometrics Bulletin 2 (1946) 110-114.

The log rate of repeat r in start v of arm a is arm + drift * position + start(v) + repeat(v, r). An interval over
repeats alone says nothing about the next start. So the start component is estimated from starts of one arm, and pooled
over the run's arms, as the machine's drift is. That makes two starts of each arm enough.

The start variance is a mean square less what repeats contribute to it, floored at 0. Its uncertainty is taken from the
mean square, not from the small difference, because simulation decided so (bench/coverage.py). With the difference's own
uncertainty, intervals cover 89 to 92 % where starts and repeats scatter alike; unfloored, or with that uncertainty kept
where the floor holds, 99 % and more where starts don't differ. An arm's repeat variance is moderated by the others'
(`warehouse.dataset.statistics.repeats`).

With one to ten degrees of freedom an interval that holds at 5 % need not hold at 5 % over the number of cells, where a
claim is decided: any false claim in a family came up to 11 % of the time. So the p value of a ratio is stricter than
its interval. It has no more degrees of freedom than the starts, and no arm's repeats count as scattering less than the
run's do on average. Then one comes at most 4 % of the time. With one or two degrees the interval is made so, too.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

from warehouse.dataset.statistics.proportions import ALPHA
from warehouse.dataset.statistics.repeats import SMALLEST_VAR, Repeats, moderated
from warehouse.ledger.formulas import student_quantile, student_tail


class StartRates(NamedTuple):
    """What one start measured of one thing."""

    log_rates: tuple[float, ...]  # log of tok/s, per repeat
    log_rate: float  # log of all repeats' tokens over all repeats' seconds
    position: float | None = None  # rank in the machine's order of starts


Arm = tuple[StartRates, ...]  # starts of one thing on one machine


def scatter(starts: Sequence[Sequence[float]]) -> Repeats:
    """Of an arm whose starts have these log rates: pooled over the starts, each about its own mean."""
    squares, df = 0.0, 0
    for rates in starts:
        mean = sum(rates) / len(rates)
        squares += sum([(rate - mean) ** 2 for rate in rates])
        df += len(rates) - 1
    return Repeats(len(starts), max(squares / df, SMALLEST_VAR) if df else 0.0, df)


def scatter_of(arm: Arm) -> Repeats:
    """Of its repeats, within starts."""
    return scatter([start.log_rates for start in arm])


def is_placed(starts: Sequence[StartRates]) -> bool:
    """Whether their order on the machine is known."""
    return all(start.position is not None for start in starts)


def middle_of(arm: Arm) -> float:
    """Of its starts' positions: a drift cancels between two arms with the same one."""
    return mean_of([start.position or 0.0 for start in arm])


def mean_of(values: Sequence[float]) -> float:
    """Arithmetic."""
    return sum(values) / len(values)


FEWEST_FOR_DRIFT = 3
"""Differences within arms from which a drift is fitted; it costs one, and two must be left for the starts."""

FEWEST_REPEATS, MOST_REPEATS = 3, 30
"""Bounds of `best_repeats`: below, a start's scatter is not known; above, a machine does not stay steady."""

_MORE_OFF, _MOST_OFF = 0.03, 0.3
"""Share of the repeats' part that is taken off the mean square of starts in addition, per degree of freedom; its cap.

Floored at 0, a difference that is 0 on average is positive on average. Taking more off keeps intervals of starts that
do not differ from covering more than 97 %. With few degrees there is little to spare. Where starts scatter half as much
as repeats, an estimate of 0 then comes often, and coverage would fall below 93 %."""


class Within(NamedTuple):
    """How an arm's starts differ from one another."""

    df: int  # starts less one
    squares: float  # of log rates about the arm's mean
    position_squares: float  # of positions about their mean; 0 where they are not known
    products: float  # of the two
    repeat_var: float  # what repeats bring into one start's variance
    repeat_df: float


class Components(NamedTuple):
    """What a run's arms say together about one condition."""

    start_var: float  # variance of a start's log rate
    start_df: float  # 0: no arm has two starts, so that nothing is known of starts
    drift: float  # log per position; 0 where it was not fitted
    start_error: float = 0.0
    """Half the variance of `start_var`, in the sense of Satterthwaite: sum of squared mean squares over their df."""
    mean_square: float = 0.0  # of starts within arms: starts and repeats together
    repeat_part: float = 0.0  # what of it are repeats
    drift_var: float = 0.0  # of `drift`'s estimate
    repeats: tuple[Repeats, ...] = ()  # of every arm of the run, for moderation
    within: tuple[Within, ...] = ()  # of every arm with two starts, so that one can be compared with the others

    @property
    def drift_share(self) -> float | None:
        """Change of a rate per position; None: there was too little to fit one."""
        return math.expm1(self.drift) if self.drift else None


def components(arms: Sequence[Arm]) -> Components:
    """Start variance and drift, pooled over a run's arms in one condition; arms of one start help with repeats."""
    repeats = tuple(scatter_of(arm) for arm in arms)
    within = tuple(
        within_of(arm, moderated(own, repeats))
        for arm, own in zip(arms, repeats, strict=True)
        if len(arm) > 1 and own.df > 0
    )
    return pooled(within, repeats)


def best_repeats(start_var: float, repeat_var: float, start_s: float, repeat_s: float) -> float:
    """Repeats per start that give the narrowest interval for a budget of seconds, from variances of log rates.

    Source: Kalibera and Jones 2013, section 6: sqrt(cost of a start / cost of a repeat * repeat variance / start
    variance).
    """
    if start_var <= 0 or repeat_s <= 0:
        return float(MOST_REPEATS)
    return min(max(math.sqrt(start_s / repeat_s * repeat_var / start_var), FEWEST_REPEATS), MOST_REPEATS)


def pooled(
    within: tuple[Within, ...], repeats: tuple[Repeats, ...], fewest_for_drift: int = FEWEST_FOR_DRIFT
) -> Components:
    """The same from how arms of two starts and more differ `within`; a drift is fitted from so many differences."""
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
    """How the arm's starts differ, `repeats` being its moderated scatter."""
    rates = [start.log_rate for start in arm]
    mean = mean_of(rates)
    position_squares = products = 0.0
    if is_placed(arm):
        middle = middle_of(arm)
        aside = [(start.position or 0.0) - middle for start in arm]
        position_squares = sum([each * each for each in aside])
        products = sum([each * (rate - mean) for each, rate in zip(aside, rates, strict=True)])
    return Within(
        df=len(arm) - 1,
        squares=sum([(rate - mean) ** 2 for rate in rates]),
        position_squares=position_squares,
        products=products,
        repeat_var=repeats.var * mean_of([1 / len(start.log_rates) for start in arm]),
        repeat_df=repeats.df,
    )


FEWEST_FOR_PLACEBO_DRIFT = 2
"""Differences within arms from which an A/A check's drift is fitted: its two starts are furthest apart, and a drift
that is left in would set off its alarm."""

FEWEST_FOR_SATTERTHWAITE = 3
"""Degrees of freedom of the starts from which a ratio's interval may have more than they have."""


class Estimate(NamedTuple):
    """A log rate or the log of a ratio, with its 95 % interval."""

    log: float
    lo: float
    hi: float
    df: float
    p: float  # two-sided, that it is 0; says something of ratios only. Of those it is stricter than the interval.


def rate_interval(arm: Arm, found: Components) -> Estimate | None:
    """A rate's interval; where starts are not known, over the repeats of one start. None: nor are repeats known."""
    own = scatter_of(arm)
    if not own.df:
        return None
    rate = mean_of([start.log_rate for start in arm])
    if not found.start_df:
        return _estimate(rate, [_repeat_part(arm, own)])
    return _estimate(rate, [_repeat_part(arm, moderated(own, found.repeats))], 1 / len(arm), found)


def ratio_interval(cell: Arm, baseline: Arm, found: Components) -> Estimate | None:
    """The log of a cell's rate over its baseline's, on one machine; None: starts, repeats or a drift aren't known.

    Its variance is that of a start times (1 / starts + 1 / starts), and both arms' repeats. A drift cancels where both
    arms lie about the same middle, as all designs but `single` have it; what is left of it is taken out.
    """
    scatters = [scatter_of(cell), scatter_of(baseline)]
    if not found.start_df or not all(own.df for own in scatters):
        return None
    ratio = mean_of([start.log_rate for start in cell]) - mean_of([start.log_rate for start in baseline])
    apart = middle_of(cell) - middle_of(baseline) if is_placed((*cell, *baseline)) else 0.0
    if apart and not found.drift:
        return None
    drifted = [(apart * apart * found.drift_var, found.start_df)] if apart else []
    log, starts = ratio - apart * found.drift, 1 / len(cell) + 1 / len(baseline)
    repeats = [moderated(own, found.repeats) for own in scatters]
    least = _average(found.repeats or scatters)
    plain, strict = (
        [*(_repeat_part(arm, own) for arm, own in zip((cell, baseline), each, strict=True)), *drifted]
        for each in (repeats, [own._replace(var=max(own.var, least)) for own in repeats])
    )
    cautious = _estimate(log, strict, starts, found, found.start_df)
    if found.start_df < FEWEST_FOR_SATTERTHWAITE:
        return cautious
    estimate = _estimate(log, plain, starts, found)
    return estimate._replace(p=max(estimate.p, cautious.p))


def placebo_interval(ar: Arm, found: Components) -> Estimate | None:
    """An arm's last start over its first, drift taken out: what no technique has touched must be 0.

    It is compared with the *other* arms' starts, since its own difference would widen the interval by which it is
    judged: with their mean square as it is, and wider if this arm's repeats scatter more. None: it, or no other, has
    two starts.
    """
    own = scatter_of(ar)
    if len(ar) < 2 or not own.df:
        return None
    repeats = moderated(own, found.repeats)
    mine = within_of(ar, repeats)
    rest = list(found.within)
    if mine in rest:  # once: another arm may look the same
        rest.remove(mine)
    others = pooled(tuple(rest), found.repeats, FEWEST_FOR_PLACEBO_DRIFT)
    if not others.start_df:
        return None
    first, last = ar[0], ar[-1]
    apart = last.position - first.position if first.position is not None and last.position is not None else 0.0
    noisier = max(0.0, repeats.var * (1 / len(first.log_rates) + 1 / len(last.log_rates)) - 2 * others.repeat_part)
    var = 2 * others.mean_square + noisier + apart * apart * others.drift_var
    return _interval(last.log_rate - first.log_rate - apart * others.drift, var, others.start_df)


def smallest_seen(estimate: Estimate, tests: int) -> float:
    """The smallest log ratio that reads as a difference among so many A/A checks: Bonferroni's, where Holm begins."""
    return (estimate.hi - estimate.log) * student_quantile(ALPHA / 2 / tests, estimate.df) / _quantile(estimate.df)


def _repeat_part(arm: Arm, repeats: Repeats) -> tuple[float, float]:
    """What repeats bring into the variance of an arm's mean, and its degrees of freedom."""
    return repeats.var * sum([1 / len(start.log_rates) for start in arm]) / len(arm) ** 2, repeats.df


def _average(arms: Sequence[Repeats]) -> float:
    return sum([arm.df * arm.var for arm in arms]) / sum([arm.df for arm in arms])


def _estimate(
    log: float,
    parts: Sequence[tuple[float, float]],
    starts: float = 0.0,
    found: Components | None = None,
    most_df: float = math.inf,
) -> Estimate:
    """From the parts of a variance, each with its degrees of freedom, and the starts' times `starts`."""
    var = sum([part for part, _ in parts])
    errors = sum([part * part / df for part, df in parts])
    if found is not None and found.start_var > 0:
        var += starts * found.start_var
        errors += starts**2 * (found.start_error or found.start_var**2 / found.start_df)
    return _interval(log, var, min(max(1.0, var * var / errors), most_df))


def _interval(log: float, var: float, df: float) -> Estimate:
    """Degrees of freedom are rounded down to three digits, which lets quantiles be remembered."""
    if not var:  # starts and repeats alike to the last bit: made up, but a build must not stop at it
        return Estimate(log, log, log, df, float(log == 0))
    error = math.sqrt(var)
    grain = 10.0 ** (math.floor(math.log10(df)) - 2)
    df = max(1.0, math.floor(df / grain) * grain)
    half = _quantile(df) * error
    return Estimate(log, log - half, log + half, df, 2 * student_tail(abs(log) / error, df))


@lru_cache(maxsize=4096)
def _quantile(df: float) -> float:
    """Of Student's t, two-sided 95 %."""
    return student_quantile(ALPHA / 2, df)
