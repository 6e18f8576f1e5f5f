"""What `sweep published` prints: every published row, its figures, and what in them can't be right."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from warehouse.report.display.figures import technique_name
from warehouse.report.published.read import UNITS, Published

STYLES = {"ok": "green", "suspect": "yellow", "rejected": "red"}
"""Colours of verdicts."""


def render(judged: Sequence[Published]) -> Group:
    """One table per write-up; fits 100 columns."""
    parts: list[RenderableType] = []
    for name in dict.fromkeys(each.write_up.name for each in judged):
        rows = [each for each in judged if each.write_up.name == name]
        found = rows[0].write_up
        where = f"{found.date}, {found.hardware}; {found.engine}"
        parts += [Text(f"{name}: {found.title}\n  {found.source}\n  {where}", style="bold"), _table(rows)]
    flagged = sum(each.row.verdict != "ok" for each in judged)
    return Group(*parts, Text(f"{len(judged)} published rows, {flagged} of them flagged"))


def _table(rows: Sequence[Published]) -> Table:
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
    for column in ("cell", "condition", "figures", "verdict"):
        table.add_column(column)
    for each in rows:
        row = each.row
        cell = f"{row.model or 'not said'} {row.precision or ''} {technique_name(row.model_dump())}"
        condition = " ".join(filter(None, (row.condition, row.workload, row.suite, row.framework)))
        sds = {name: f" ± {value:g}" for name, value in row.sd.items() if value is not None}
        figures = [f"{name} {value:.10g}{sds.get(name, '')}" for name, value in row.figures.items()]
        if row.acceptance_by_position:
            figures.append("by position " + " ".join(f"{share:.3g}" for share in row.acceptance_by_position))
        why = "".join(f"\n{sentence}" for sentence in row.details)
        verdict = Text(f"{each.row.verdict}{' ' if row.reasons else ''}{', '.join(row.reasons)}{why}")
        verdict.stylize(STYLES[each.row.verdict])
        table.add_row(cell, condition, ", ".join(figures), verdict)
    return table


def document(judged: Sequence[Published]) -> dict[str, Any]:
    """The same as one JSON document: sources once, rows with only what their source prints."""
    sources = {each.write_up.name: each.write_up.model_dump(exclude={"tables"}) for each in judged}
    rows = [each.row.model_dump(mode="json", exclude_none=True) | {"source": each.write_up.name} for each in judged]
    return {"sources": sources, "units": UNITS, "rows": rows}
