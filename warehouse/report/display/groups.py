"""Rows that share a plot, and rows that share a line of it."""

from __future__ import annotations

from collections.abc import Sequence

from warehouse.report.display.figures import Row
from warehouse.report.display.view import Cell, bench


def benches_of(rows: Sequence[Row], *, by_precision: bool = True) -> list[list[Row]]:
    """Rows that share a plot: of one model, engine and machine, in one run, and of one precision unless told."""
    found: dict[tuple[str, ...], list[Row]] = {}
    for row in rows:
        found.setdefault((*bench(row), row["precision"] if by_precision else "", row["run_id"]), []).append(row)
    return [*found.values()]


def cells_of(rows: Sequence[Row]) -> list[list[Row]]:
    """Rows that share a line of one; rejected rows are in tables only."""
    found: dict[Cell, list[Row]] = {}
    for row in rows:
        if row["verdict"] != "rejected":
            found.setdefault((row["run_id"], row["cell_key"]), []).append(row)
    return [*found.values()]
