"""Stand-in with the agreed names, pooled t: branch w-stats has the real one, which replaces this file."""

from __future__ import annotations

from collections.abc import Sequence
from math import fsum, sqrt
from statistics import fmean
from typing import NamedTuple

from warehouse.statistics.beta import student_quantile, student_tail


class VisitRates(NamedTuple):
    """One visit."""

    log_rates: tuple[float, ...]
    log_rate: float
    position: float | None = None


Arm = tuple[VisitRates, ...]


class Components(NamedTuple):
    """What varies."""

    start_var: float
    start_df: float
    drift: float


class Estimate(NamedTuple):
    """In logs."""

    log: float
    lo: float
    hi: float
    df: float
    p: float


def components(arms: Sequence[Arm]) -> Components:
    """As agreed."""
    several = [[visit.log_rate for visit in arm] for arm in arms if len(arm) > 1]
    df = sum(len(arm) - 1 for arm in several)
    squares = fsum((rate - fmean(arm)) ** 2 for arm in several for rate in arm)
    return Components(squares / df if df else 0.0, df, 0.0)


def rate_interval(arm: Arm, found: Components) -> Estimate:
    """As agreed."""
    return _estimate(fmean(visit.log_rate for visit in arm), _var(arm, found), found, (arm,))


def ratio_interval(cell: Arm, baseline: Arm, found: Components) -> Estimate | None:
    """As agreed."""
    log = fmean(visit.log_rate for visit in cell) - fmean(visit.log_rate for visit in baseline)
    return (
        _estimate(log, _var(cell, found) + _var(baseline, found), found, (cell, baseline)) if found.start_df else None
    )


def placebo_interval(ar: Arm, found: Components) -> Estimate | None:
    """As agreed."""
    return ratio_interval(ar[1:2], ar[:1], found)


def _var(arm: Arm, found: Components) -> float:
    within = fsum((rate - fmean(visit.log_rates)) ** 2 for visit in arm for rate in visit.log_rates)
    repeats = sum(len(visit.log_rates) for visit in arm)
    return found.start_var / len(arm) + within / max(1, repeats - len(arm)) / repeats


def _estimate(log: float, var: float, found: Components, arms: Sequence[Arm]) -> Estimate:
    df = found.start_df or max(1, sum(len(visit.log_rates) - 1 for arm in arms for visit in arm))
    width = student_quantile(0.025, int(df)) * sqrt(var)
    p = min(1.0, 2 * student_tail(abs(log) / sqrt(var), int(df))) if var else float(log == 0)
    return Estimate(log, log - width, log + width, df, p)
