"""Curves over K: which cells of a run differ in nothing but how many tokens they draft."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from configs.schema import PlannedCell
from configs.steps.depth import PREFILL
from warehouse.dataset.consolidate.baseline import baseline_among
from warehouse.dataset.consolidate.rows import Row, acceptance_source, made_up

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
