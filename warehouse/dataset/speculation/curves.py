"""Curves over K: which cells of a run differ in nothing but how many tokens they draft.

A curve has points under each condition: its rows, and the starts that each K may be held against another by.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from configs.schema import PlannedCell
from configs.steps.depth import PREFILL
from configs.visits import Role
from warehouse.dataset.consolidate.inputs import baseline_among
from warehouse.dataset.consolidate.rows import Row, acceptance_source, made_up
from warehouse.dataset.consolidate.speed.run import Visits
from warehouse.dataset.consolidate.speed.settled import Known
from warehouse.dataset.statistics.speculation import SAME, Ratio, apart
from warehouse.dataset.statistics.visits import Components, Estimate, ratio_interval
from warehouse.ledger.verdicts import Reason

Shape = tuple[str, Any, Any]
"""Step, condition and mode."""

AR_K = 0
"""What plain decoding is on a curve: a draft of no token."""


class Curve(NamedTuple):
    """Cells of one run that differ in K alone, and the AR cell of the run; two values of K or more."""

    run_id: str
    cells: Mapping[int, PlannedCell]
    baseline: PlannedCell | None

    @property
    def first(self) -> PlannedCell:
        """Its cell of the smallest K."""
        return self.cells[min(self.cells)]

    @property
    def unreal(self) -> str | None:
        """What was made up in any of its cells; None: all were really run."""
        found = [
            said for planned in self.cells.values() for said in (made_up(planned.cell), _replayed(planned)) if said
        ]
        return found[0] if found else None

    def identity(self) -> Row:
        """The columns that name it."""
        cell, draft = self.first.cell, self.first.cell.draft
        return {
            "run_id": self.run_id,
            "model": cell.model.name,
            "precision": cell.precision.name,
            "technique": cell.technique.name,
            "draft": None if draft is None else draft.hub_id or draft.family_member or draft.shape,
            "made_up": self.unreal,
            "engine": cell.engine.name,
            "gpu": self.first.gpu.name,
        }


def curves_of(run_id: str, planned: Sequence[PlannedCell]) -> list[Curve]:
    """The curves of a run, from its plan: cells that were never measured are part of them."""
    groups: dict[str, dict[int, PlannedCell]] = {}
    for each in planned:
        if each.cell.k is not None and each.cell.technique.drafts:
            groups.setdefault(_without_k(each), {})[each.cell.k] = each
    return [
        Curve(run_id, dict(sorted(cells.items())), baseline_among(next(iter(cells.values())), planned))
        for cells in groups.values()
        if len(cells) > 1
    ]


def shapes_of(rows: Iterable[Row]) -> list[Shape]:
    """What was measured of a curve's cells: each is a curve of its own, and never helps another one.

    Prefill is none, though it has a rate: nothing is drafted in it, and K changes nothing about it.
    """
    return sorted({shape_of(row) for row in rows if row.get("tok_s") is not None and row.get("mode") != PREFILL})


def shape_of(row: Row) -> Shape:
    """What a row was measured under; a step without conditions has none."""
    return row["step"], row.get("condition"), row.get("mode")


def _without_k(planned: PlannedCell) -> str:
    """What the cells of a curve share; of a replayed acceptance its source, because each K has rates of its own."""
    shared = planned.cell.model_copy(update={"k": None, "acceptance": None})
    return f"{shared.cell_key} {planned.gpu.name} {planned.cell.acceptance and planned.cell.acceptance.label}"


def _replayed(planned: PlannedCell) -> str | None:
    source = acceptance_source(planned.cell) or ""
    return f"acceptance={source}" if source.startswith("replayed:") else None


class Point(NamedTuple):
    """One K under one condition: its row of `results_consolidated`, its starts, and AR's on its machine."""

    row: Row
    starts: Visits | None
    baseline: Visits | None
    found: Components
    """What varies from start to start in its run."""

    @property
    def is_ok(self) -> bool:
        """Whether it may be recommended, or hold another one back."""
        return self.row["verdict"] == "ok" and self.row.get("tok_s") is not None and self.starts is not None


class Points(NamedTuple):
    """A curve under one condition."""

    curve: Curve
    shape: Shape
    by_k: Mapping[int, Point]
    """Of every K that has a row, whatever its verdict; 0 is the run's AR cell, where it has one."""
    withheld: Reason | None
    """Why a run of theirs claims no speed under this condition; None: all may."""

    @property
    def concurrency(self) -> int | None:
        """Requests in flight."""
        return next((point.row["concurrency"] for point in self.by_k.values()), None)

    def compared(self, one: int, other: int) -> Ratio | None:
        """Log of one K's rate over another's: of starts on one machine, else by what each gains over its own AR."""
        if one == other:
            return SAME
        direct = self._direct(one, other)
        if direct is not None:
            return Ratio(direct.log, direct.lo, direct.hi)
        gains = [self.gain(each) for each in (one, other)]
        ours, theirs = gains
        return None if ours is None or theirs is None else apart(ours, theirs)

    def gain(self, k: int) -> Estimate | None:
        """Log of its rate over AR's on its machine; AR over itself is exactly 0."""
        if k == AR_K:
            return Estimate(0.0, 0.0, 0.0, 1.0, 1.0)
        point = self.by_k[k]
        return _ratio(point.starts, point.baseline, point.found)

    def _direct(self, one: int, other: int) -> Estimate | None:
        starts = {k: self.by_k[k].starts if k in self.by_k else None for k in (one, other)}
        beside = other if one == AR_K else one
        if AR_K in starts:  # the other's own AR: it was started beside it
            starts[AR_K] = self.by_k[beside].baseline
        ours, theirs = starts[one], starts[other]
        if ours is None or theirs is None or _place(ours) != _place(theirs):
            return None
        return _ratio(ours, theirs, self.by_k[beside].found)


def points_of(curve: Curve, shape: Shape, rows: Sequence[Row], known: Known) -> Points:
    """The points of a curve, from the rows of its cells and of its AR cell."""
    here = {row["cell_key"]: row for row in rows if shape_of(row) == shape}
    cells = curve.cells if curve.baseline is None else {AR_K: curve.baseline, **curve.cells}
    points = {}
    for k, planned in cells.items():
        row = here.get(planned.cell.cell_key)
        if row is not None:
            found = known.components.get((row["run_id"], *shape)) or Components(0.0, 0.0, 0.0)
            beside = _baseline(row, planned, curve, known)
            points[k] = Point(row, _starts(row, planned, "cell", known), beside, found)
    withheld = (known.placebos.withholds((point.row["run_id"], *shape)) for point in points.values())
    return Points(curve, shape, points, next(filter(None, withheld), None))


def _place(starts: Visits) -> tuple[str, str | None]:
    """Run and machine: what differs from start to start is known of each run by itself."""
    first = starts.starts[0].columns
    return first["run_id"], first["machine"]


def _ratio(ours: Visits | None, theirs: Visits | None, found: Components) -> Estimate | None:
    if ours is None or theirs is None or not (ours.is_ok and theirs.is_ok):
        return None
    return ratio_interval(ours.rates, theirs.rates, found)


def _baseline(row: Row, planned: PlannedCell, curve: Curve, known: Known) -> Visits | None:
    """AR's starts on the machine of the row: those that the cell brought along, else the AR cell's."""
    if planned.control is not None:
        return _starts(row, planned, "control", known)
    return None if curve.baseline is None else _starts(row, curve.baseline, "cell", known)


def _starts(row: Row, planned: PlannedCell, role: Role, known: Known) -> Visits | None:
    arm = (row["run_id"], planned.cell.cell_key, row["step"], role, row.get("machine"))
    return known.arms.get((arm, (row["condition"], row["mode"])))
