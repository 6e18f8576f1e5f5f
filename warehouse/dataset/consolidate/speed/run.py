"""All visits of the runs that are built: their places in each machine's order, and what varies from start to start."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import exp
from statistics import fmean
from typing import Any, NamedTuple

from configs.cell import Cell
from warehouse.dataset.consolidate.rows import Row
from warehouse.dataset.consolidate.serving import timed_differently, unlike_the_first
from warehouse.dataset.consolidate.speed.arms import ArmKey
from warehouse.dataset.consolidate.speed.visits import SEEN, Seen, Shape
from warehouse.dataset.statistics.visits import Arm, Components, components

Load = tuple[str, str, str, str]
"""Run, step, condition and mode."""


class Visits(NamedTuple):
    """Visits of one thing on one machine under one condition, in their order."""

    served: Cell
    rates: Arm
    rows: tuple[Row, ...]

    @property
    def tok_s(self) -> float:
        """Geometric mean of their rates, tokens per second."""
        return exp(fmean(visit.log_rate for visit in self.rates))

    @property
    def energy_j_per_token(self) -> float | None:
        """Mean over the starts of which a card told any; None: of none."""
        known = [row["energy_j_per_token"] for row in self.rows if row["energy_j_per_token"] is not None]
        return fmean(known) if known else None

    @property
    def places(self) -> list[Row]:
        """Provenance of each."""
        return [row[SEEN].place for row in self.rows]

    @property
    def is_ok(self) -> bool:
        """Whether every one may be believed, and all are starts of the same engine, timed by the same client."""
        if unlike_the_first(self.places) or timed_differently(self.places) is not None:
            return False
        return all(row["verdict"] == "ok" for row in self.rows)


Arms = dict[tuple[ArmKey, Shape], Visits]


def in_place(visits: Sequence[Row]) -> list[Row]:
    """The rows with their rank by time among all visits of the machine, from 1; null for one that is alone there."""
    times: dict[tuple[Any, ...], set[tuple[str, ...]]] = {}
    for row in visits:
        if row["complete"] and row["machine"] is not None:
            times.setdefault(_order_of(row), set()).add(_visit_of(row))
    ranks = {key: {one: float(at) for at, one in enumerate(sorted(found), 1)} for key, found in times.items()}
    alone = {key for key, found in ranks.items() if len(found) == 1}
    return [
        row | {"position": None if _order_of(row) in alone else ranks.get(_order_of(row), {}).get(_visit_of(row))}
        if row["complete"]
        else row
        for row in visits
    ]


def _order_of(row: Row) -> tuple[Any, ...]:
    return row["run_id"], row["step"], row["machine"]


def _visit_of(row: Row) -> tuple[str, ...]:
    return row["measured_at"], row["cell_key"], row["role"], f"{row['visit']:03d}"


def arms_of(placed: Sequence[Row]) -> Arms:
    """Visits that were measured to the end, by what they are visits of."""
    found: dict[tuple[ArmKey, Shape], list[Row]] = {}
    for row in sorted(placed, key=lambda each: each["visit"]):
        if row["complete"] and row[SEEN].rates is not None:
            key = (row["run_id"], row["cell_key"], row["step"], row["role"], row["machine"])
            found.setdefault((key, (row["condition"], row["mode"])), []).append(row)
    return {key: _visits(rows) for key, rows in found.items()}


def _visits(rows: Sequence[Row]) -> Visits:
    seen: list[Seen] = [row[SEEN] for row in rows]
    rates = [
        each.rates._replace(position=row["position"])
        for each, row in zip(seen, rows, strict=True)
        if each.rates is not None
    ]
    return Visits(seen[0].served, tuple(rates), tuple(rows))


def load_of(key: tuple[ArmKey, Shape]) -> Load:
    """What an arm shares with those that vary from start to start as it does."""
    (run_id, _, step, _, _), shape = key
    return run_id, step, *shape


def components_of(arms: Arms) -> dict[Load, Components]:
    """Per run and condition, from all its trusted arms: cells and controls of every model."""
    found: dict[Load, list[Arm]] = {load_of(key): [] for key in arms}
    for key, visits in arms.items():
        if key[0][-1] is not None and visits.is_ok:
            found[load_of(key)].append(visits.rates)
    return {load: components(rates) for load, rates in found.items()}


def baselines_of(arms: Arms) -> Iterator[tuple[tuple[ArmKey, Shape], Visits]]:
    """Trusted arms of plain AR with several starts."""
    for key, visits in arms.items():
        if visits.served.technique.is_baseline and visits.is_ok and len(visits.rates) > 1 and key[0][-1] is not None:
            yield key, visits
