"""Needle: its sections of the page."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from configs.steps.needle import length_name
from warehouse.report.display.figures import NOTHING, Row, span, technique_label
from warehouse.report.display.markup import Child, Markup, Section, join, section, tag
from warehouse.report.display.tables import Heading, table
from warehouse.report.display.view import View, bench, cell_of, grouped


def needle_section(view: View) -> Markup | None:
    """A grid per cell: lengths down, depths across."""
    shown = [row for row in view.of(step="needle") if row["score"] is not None]
    if not shown:
        return None
    lead = (
        "A sentence with a number, hidden in prose at a depth of the prompt; the question for it stands at the end. "
        "Found out of asked, with the exact 95 % interval of the share: so few can show that needles are lost, hardly "
        "that none is. A dash: the cell doesn't serve that length."
    )
    grids = [_grid(rows, shown) for rows in grouped(shown, cell_of).values()]
    return section("needle", "Needles in long texts", lead, *(child for grid in grids for child in grid))


def _grid(rows: Sequence[Row], shown: Sequence[Row]) -> tuple[Markup, Markup]:
    """A cell's name and its grid, with the lengths and depths of all cells of its bench, so that grids compare."""
    beside = [row for row in shown if bench(row) == bench(rows[0])]
    there = {(row["context_tokens"], row["depth_percent"]): row for row in rows}
    depths = sorted({row["depth_percent"] for row in beside})
    lines = [
        {"length": tokens} | {str(depth): there.get((tokens, depth)) for depth in depths}
        for tokens in sorted({row["context_tokens"] for row in beside})
    ]
    columns = [
        Heading("prompt", lambda line: length_name(line["length"]), ""),
        *(Heading(f"at {depth} %", partial(_found_at, depth)) for depth in depths),
    ]
    first = rows[0]
    others = [str(first[name]) for name in ("engine", "gpu", "run_id") if len({each[name] for each in shown}) > 1]
    name = " · ".join((f"{first['model']} {first['precision']}", technique_label(first), *others))
    return tag("h3", name), table(f"Needles found, {name}", columns, lines)


def _found_at(depth: int, line: Row) -> Child:
    """`3 of 3 (0.29 to 1.00)`; words say what is lost, cut off or not reliable, and colour only repeats them."""
    row = line[str(depth)]
    if row is None:
        return NOTHING
    found = round(row["score"] * row["n"])
    said = [f"{found} of {row['n']}{'' if found == row['n'] else ' found'}"]
    said += [f"{row[what]} {words}" for what, words in (("truncated", "cut off"), ("blank", "blank")) if row[what]]
    said += [row["verdict"]] if row["verdict"] != "ok" else []
    colour = "ok" if found == row["n"] else "rejected" if found == 0 else "suspect"
    interval = f" ({span(row['score_lo'], row['score_hi'])})"
    return join([tag("span", ", ".join(said), class_=colour), tag("small", interval)])


SECTIONS = (Section("needle", "Needles", needle_section, 55),)
