"""What `sweep published` prints: every published row, its figures, and what in them can't be right."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from warehouse.display.figures import technique_name
from warehouse.published.figures import UNITS
from warehouse.published.read import Published

STYLES = {"ok": "green", "suspect": "yellow", "rejected": "red"}
"""Colours of verdicts."""


def render(judged: Sequence[Published]) -> Group:
    """One table per write-up; fits 100 columns."""
    parts: list[RenderableType] = []
    for name in dict.fromkeys(each.write_up.name for each in judged):
        rows = [each for each in judged if each.write_up.name == name]
        parts += [Text(_heading(rows[0]), style="bold"), _table(rows)]
    flagged = sum(each.row.verdict != "ok" for each in judged)
    return Group(*parts, Text(f"{len(judged)} published rows, {flagged} of them flagged"))


def _heading(judged: Published) -> str:
    found = judged.write_up
    return f"{found.name}: {found.title}\n  {found.source}\n  {found.date}, {found.hardware}; {found.engine}"


def _table(rows: Sequence[Published]) -> Table:
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
    for column in ("cell", "condition", "figures", "verdict"):
        table.add_column(column)
    for each in rows:
        row = each.row
        why = "".join(f"\n{sentence}" for sentence in row.details)
        verdict = Text(f"{row.verdict}{' ' if row.reasons else ''}{', '.join(row.reasons)}{why}")
        verdict.stylize(STYLES[row.verdict])
        table.add_row(_cell(each), _condition(each), _figures(each), verdict)
    return table


def _cell(judged: Published) -> str:
    row = judged.row
    return f"{row.model or 'not said'} {row.precision or ''} {technique_name(row.model_dump())}"


def _condition(judged: Published) -> str:
    row = judged.row
    return " ".join(filter(None, (row.condition, row.workload, row.suite, row.framework)))


def _figures(judged: Published) -> str:
    row = judged.row
    said = [f"{name} {value:.10g}{_sd(row.sd.get(name))}" for name, value in row.figures.items()]
    if row.acceptance_by_position:
        said.append("by position " + " ".join(f"{share:.3g}" for share in row.acceptance_by_position))
    return ", ".join(said)


def _sd(value: float | None) -> str:
    return "" if value is None else f" ± {value:g}"


def document(judged: Sequence[Published]) -> dict[str, Any]:
    """The same as one JSON document: sources once, rows with only what their source prints."""
    sources = {each.write_up.name: each.write_up.model_dump(exclude={"tables"}) for each in judged}
    rows = [each.row.model_dump(mode="json", exclude_none=True) | {"source": each.write_up.name} for each in judged]
    return {"sources": sources, "units": UNITS, "rows": rows}
