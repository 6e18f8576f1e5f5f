"""Which AR cell a cell is compared with: one rule, for consolidation and for a node that looks before the end."""

from __future__ import annotations

from collections.abc import Iterable

from configs.schema import PlannedCell


def bench_of(planned: PlannedCell) -> tuple[str, str, str, str]:
    """Model, precision, engine and kind of machine: what two cells of a run share that may be compared.

    A model that is held against another one's AR stands on that one's bench.
    """
    cell = planned.cell
    return cell.model.compared_as, cell.precision.name, cell.engine.name, planned.gpu.name


def baseline_among(planned: PlannedCell, cells: Iterable[PlannedCell]) -> PlannedCell | None:
    """The AR cell that a cell of the same run is compared with; None for AR itself, and where there is none.

    Of several, one with the same serving arguments comes first. Dummy weights are only compared with dummy weights.
    """
    if planned.cell.technique.is_baseline:
        return None
    model, serving = planned.cell.model, planned.cell.serving
    found = (
        each
        for each in cells
        if each.cell.technique.is_baseline
        and bench_of(each) == bench_of(planned)
        and (each.cell.model.name, each.cell.model.weights) == (model.compared_as, model.weights)
    )
    return min(found, key=lambda each: (each.cell.serving != serving, each.cell.cell_key), default=None)
