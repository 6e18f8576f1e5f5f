"""What rows cost: seconds and dollars of a step, shared among its rows so that any selection of rows may be summed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import fsum
from typing import Any, NamedTuple

from warehouse.dataset.consolidate.inputs import CommittedStep
from warehouse.dataset.consolidate.raw import Raw
from warehouse.ledger.commits import Part
from warehouse.ledger.price import usd_of
from warehouse.ledger.tables import PROVENANCE


class Spent(NamedTuple):
    """Seconds of nodes and dollars for them, by the names of their columns; no dollars where a price is unknown."""

    gpu_s: float | None
    cost_usd: float | None


NOTHING = Spent(None, None)
"""On a row that took no time of a node: it reads anew what another row was measured for."""


def step_seconds(step: CommittedStep, raw: Raw) -> Spent:
    """What a step of a cell took, of all attempts, in all its visits and those of its control."""
    return _sum(commit_seconds(each, raw) for each in _visits(step, raw))


def row_seconds(step: CommittedStep, raw: Raw) -> Spent:
    """`step_seconds` for the first visit that was committed, nothing for others: rows of one visit each add up."""
    return step_seconds(step, raw) if is_first(step, raw) else NOTHING


def is_first(step: CommittedStep, raw: Raw) -> bool:
    """Whether no visit of its step stands before it: the cell's own come before its control's."""
    return step is min(_visits(step, raw), key=lambda each: each.visit)


def _visits(step: CommittedStep, raw: Raw) -> list[CommittedStep]:
    """The commits of a step, one per visit."""
    return [each for each in raw.beside(step) if each.name == step.name]


def commit_seconds(step: CommittedStep, raw: Raw) -> Spent:
    """What one commit took, i.e. a timed step in one visit: its parts' seconds, each at its own attempt's price."""
    provenance = placed(step, raw)
    prices = {row["attempt"]: row["price_usd_h"] for row in provenance}
    price = prices.get(step.commit.attempt, provenance[-1]["price_usd_h"] if provenance else None)
    timed = [part for part in (*step.commit.parts, *step.commit.replaced) if part.spent_s is not None]
    if not timed:  # no part says its seconds
        return Spent(step.commit.wall_s, usd_of(price, step.commit.wall_s))
    return _sum(_part(part, prices.get(part.attempt, price)) for part in timed)


def shared(spent: Spent, weights: Sequence[float]) -> list[Spent]:
    """A sum divided in proportion to weights; equally where none weighs anything."""
    total = fsum(weights)
    shares = [weight / total if total else 1 / len(weights) for weight in weights]
    return [Spent(*(None if amount is None else amount * share for amount in spent)) for share in shares]


def window_seconds(windows: Iterable[Mapping[str, Any]]) -> float:
    """Seconds of windows, the prefills beside them included: the weight of the row that they make."""
    return fsum(window["wall_s"] + (window.get("prefill_s") or 0.0) for window in windows)


def placed(step: CommittedStep, raw: Raw) -> list[dict[str, Any]]:
    """Provenance of every attempt that wrote some, in order; what an attempt said last counts."""
    return sorted(raw.rows(step, PROVENANCE), key=lambda row: (row["attempt"], row["measured_at"]))


def _part(part: Part, price_usd_h: float | None) -> Spent:
    seconds = part.spent_s or 0.0
    return Spent(seconds, usd_of(price_usd_h, seconds))


def _sum(amounts: Iterable[Spent]) -> Spent:
    """The sum; of unknown dollars when any amount's are."""
    found = list(amounts)
    dollars = [each.cost_usd for each in found]
    known = [usd for usd in dollars if usd is not None]
    return Spent(fsum(each.gpu_s or 0.0 for each in found), fsum(known) if len(known) == len(dollars) else None)
