"""Cells that were tried and are not measured, or not whole: which, what is missing, and why, in the engine's words."""

from __future__ import annotations

from collections import Counter

from warehouse.report.display.figures import NOTHING, Row, figure, plural, technique_label
from warehouse.report.display.markup import Markup
from warehouse.report.display.section import section
from warehouse.report.display.tables import MOST_ROWS, Heading, more, naming, table
from warehouse.report.display.view import Cell, View

ANCHOR, TITLE = "not-measured", "Not measured"

MOST_NAMED = 4
"""Cells that the page's head names; the table has all."""

LEAD = (
    "Cells that were tried and ended without all that their suite asks: the engine did not start, the machine was lost "
    "too often, smoke rejected the cell. What they lack is in no table here. Why is what their last attempt said; "
    "Attempts has the others, and logs."
)


def unfinished(view: View) -> list[Row]:
    """The last attempt of every cell and kind of machine that did not end well and left something unmeasured."""
    ordered = sorted(view.attempts, key=lambda row: (row["ended_at"] or "", row["attempt"] or 0))
    last = {(row["cell_key"], row["gpu"]): row for row in ordered}
    return [row for row in last.values() if row["outcome"] != "completed" and row["unmeasured"]]


def unmeasured_section(view: View) -> Markup | None:
    """A row per such cell; None: there is none."""
    rows = sorted(unfinished(view), key=_place)
    if not rows:
        return None
    tries = Counter(map(_cell, view.attempts))
    begun = set(map(_cell, view.rows))
    columns = [
        *naming([*view.rows, *rows]),
        Heading("why", lambda row: row["reason"] or NOTHING, "wrap"),
        Heading(
            "lacks", lambda row: ", ".join(row["unmeasured"] or ()) if _cell(row) in begun else "everything", "wrap"
        ),
        Heading("ended", lambda row: row["outcome"], ""),
        Heading("tries", lambda row: figure(tries[_cell(row)], 0)),
    ]
    shown = table("Cells that are not measured", columns, rows[:MOST_ROWS])
    return section(ANCHOR, TITLE, LEAD, shown, more(rows, "attempts"))


def unmeasured_caveats(view: View) -> list[str]:
    """A sentence with the names of such cells; none where there is none."""
    rows = sorted(unfinished(view), key=_place)
    if not rows:
        return []
    several = len({row["model"] for row in [*view.rows, *rows]}) > 1
    names = [*dict.fromkeys(f"{row['model']} " * several + technique_label(row) for row in rows)]
    left = len(names) - MOST_NAMED
    others = f" and {plural(left, 'other')}" if left > 0 else ""
    return [f"Tried, and not measured or not whole: {', '.join(names[:MOST_NAMED])}{others}. See {TITLE}."]


def _cell(row: Row) -> Cell:
    return row["run_id"], row["cell_key"]


def _place(row: Row) -> tuple[str, ...]:
    return row["model"], row["precision"], technique_label(row), row["run_id"]
