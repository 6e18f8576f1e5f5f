"""What was measured of one thing on one machine: an arm, its visits, and how they lie."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from warehouse.dataset.statistics.repeats import Repeats, scatter


class VisitRates(NamedTuple):
    """What one visit measured of one thing."""

    log_rates: tuple[float, ...]
    """Log of tok/s, per repeat."""
    log_rate: float
    """Log of all repeats' tokens over all repeats' seconds."""
    position: float | None = None
    """Rank in the machine's order of visits."""


Arm = tuple[VisitRates, ...]
"""Visits of one thing on one machine."""


def scatter_of(arm: Arm) -> Repeats:
    """Of its repeats, within visits."""
    return scatter([visit.log_rates for visit in arm])


def is_placed(visits: Sequence[VisitRates]) -> bool:
    """Whether their order on the machine is known."""
    return all(visit.position is not None for visit in visits)


def middle_of(arm: Arm) -> float:
    """Of its visits' positions: a drift cancels between two arms with the same one."""
    return mean_of([visit.position or 0.0 for visit in arm])


def mean_of(values: Sequence[float]) -> float:
    """Arithmetic."""
    return sum(values) / len(values)
