"""Intervals of rates, of their ratios, and of a placebo, from the parts of their variances.

With one to ten degrees of freedom it takes a simulation to say whether 95 % are 95 % (bench/coverage.py). An interval
that holds at 5 % need not hold at 5 % over the number of cells, where a claim is decided: far out, t with
Satterthwaite's degrees is too short (any false claim in a family: up to 11 %). So the p value of a ratio is stricter
than its interval: it has no more degrees of freedom than the starts, and no arm's repeats scatter less than the run's
do on average (then: at most 4 %). With one or two degrees the interval is made so, too.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

from warehouse.dataset.statistics.proportions import ALPHA
from warehouse.dataset.statistics.repeats import Repeats, moderated
from warehouse.dataset.statistics.visits.arms import Arm, is_placed, mean_of, middle_of, scatter_of
from warehouse.dataset.statistics.visits.variance import Components, pooled, within_of
from warehouse.ledger.formulas.beta import student_quantile, student_tail

FEWEST_FOR_PLACEBO_DRIFT = 2
"""Differences within arms from which a placebo's drift is fitted: its two visits lie furthest apart, and a drift that
is left in would be its alarm."""

FEWEST_FOR_SATTERTHWAITE = 3
"""Degrees of freedom of the starts from which a ratio's interval may have more than they have."""


class Estimate(NamedTuple):
    """A log rate or the log of a ratio, with its 95 % interval."""

    log: float
    lo: float
    hi: float
    df: float
    p: float
    """Two-sided, that it is 0; says something of ratios only. Of those it is stricter than the interval."""


def rate_interval(arm: Arm, found: Components) -> Estimate | None:
    """A rate's interval; where starts are not known, over the repeats of one start ("within one start").

    None: nor are repeats, there being one per visit.
    """
    own = scatter_of(arm)
    if not own.df:
        return None
    rate = mean_of([visit.log_rate for visit in arm])
    if not found.start_df:
        return _estimate(rate, [_repeat_part(arm, own)])
    return _estimate(rate, [_repeat_part(arm, moderated(own, found.repeats))], 1 / len(arm), found)


def ratio_interval(cell: Arm, baseline: Arm, found: Components) -> Estimate | None:
    """The log of a cell's rate over its baseline's, on one machine.

    Its variance is that of a start times (1 / visits + 1 / visits), and both arms' repeats. A drift cancels where both
    arms lie about the same middle, as all designs but `single` have it; what is left of it is taken out.

    None: no claim, for nothing is known of starts, or of an arm's repeats, or of the drift between other middles.
    """
    scatters = [scatter_of(cell), scatter_of(baseline)]
    if not found.start_df or not all(own.df for own in scatters):
        return None
    ratio = mean_of([visit.log_rate for visit in cell]) - mean_of([visit.log_rate for visit in baseline])
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
    """An arm's last visit over its first, drift taken out: what no technique has touched must be 0.

    It is held against the *other* arms' visits: its own difference would widen the interval by which it is judged. And
    against their mean square as it is, repeats included; where this arm's repeats scatter more, by that much more.

    None: the arm has no two visits, or no other has.
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
    """The smallest log ratio that reads as a difference where the placebo is one of so many.

    Bonferroni's, which is where Holm begins: nothing below it gives a first p that is small enough.
    """
    return (estimate.hi - estimate.log) * student_quantile(ALPHA / 2 / tests, estimate.df) / _quantile(estimate.df)


def _repeat_part(arm: Arm, repeats: Repeats) -> tuple[float, float]:
    """What repeats bring into the variance of an arm's mean, and its degrees of freedom."""
    return repeats.var * sum([1 / len(visit.log_rates) for visit in arm]) / len(arm) ** 2, repeats.df


def _average(arms: Sequence[Repeats]) -> float:
    """Variance of a repeat, over all of a run's."""
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
    if not var:  # visits and repeats alike to the last bit: made up, but a build must not stop at it
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
