"""Tables of the page: columns as data, so that a section is a list of headings and the rows below them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import NamedTuple

from warehouse.ledger.verdicts import VERDICTS
from warehouse.report.display.figures import NOTHING, Row, ar_name, marks, plural, technique_sign
from warehouse.report.display.markup import Child, Markup, join, tag

MOST_ROWS = 400
"""Most rows of one kind on the page: years of them wouldn't fit a phone. Tables say how many more there are."""

Cell = Callable[[Row], Child]
"""Turns a row into the content of one of its cells."""


class Heading(NamedTuple):
    """One column of a page's table; kinds: "n" numbers, to the right; "wrap" long text; "short" some words; "" else."""

    title: str
    cell: Cell
    kind: str = "n"


def table(label: str, headings: Sequence[Heading], rows: Sequence[Row], named: Sequence[Row] = ()) -> Markup:
    """Rows in a box that scrolls sideways on its own; the first column stays in sight.

    Args:
        label: what the table shows, for screen readers.
        headings: its columns; the first one names the row.
        rows: what to show.
        named: others whose names a column has, with their signs.
    """
    head = tag("tr", *(tag("th", column.title, scope="col", class_=column.kind or None) for column in headings))
    body = (tag("tr", *_cells(headings, row)) for row in rows)
    box = tag(
        "div",
        tag("table", tag("thead", head), tag("tbody", *body)),
        class_="scroll",
        role="region",
        aria_label=label,
        tabindex=0,
    )
    return join([box, _legend([*rows, *named])])


def beside(cells: Sequence[Row], controls: Sequence[Row]) -> tuple[Heading, list[Row]]:
    """The column that names the cell which a control was started for, and the rows whose signs it shows."""
    asked = {control["cell_key"] for control in controls}
    named = {row["cell_key"]: row for row in cells if row["cell_key"] in asked}
    names = {key: technique_sign(row) for key, row in named.items()}
    return Heading("beside", lambda control: names.get(control["cell_key"], NOTHING), ""), [*named.values()]


def _legend(rows: Sequence[Row]) -> Child:
    """What the signs at the names of these rows mean, once and not in every row."""
    found = dict.fromkeys(mark for row in rows for mark in marks(row))
    said = "; ".join(f"{mark.sign} {mark.words}" for mark in found)
    return tag("p", said, class_="signs") if said else None


def fair_share(rows: Sequence[Row], group: Callable[[Row], object]) -> list[Row]:
    """At most `MOST_ROWS` of the rows, in their order: of every group its first ones, so that none hides the others."""
    if len(rows) <= MOST_ROWS:
        return [*rows]
    seen: Counter[object] = Counter()
    ranks = []
    for place, row in enumerate(rows):
        ranks.append((seen[group(row)], place))
        seen[group(row)] += 1
    return [rows[place] for place in sorted(place for _, place in sorted(ranks)[:MOST_ROWS])]


def more(rows: Sequence[Row], name: str) -> Child:
    """How many rows a table leaves out, and where they are."""
    left = len(rows) - MOST_ROWS
    return tag("p", f"{plural(left, 'row')} more in {name}.parquet.") if left > 0 else None


def without_empty(columns: Sequence[Heading], rows: Sequence[Row]) -> list[Heading]:
    """Columns in which any row has something: what a kind of machine never tells is left out."""
    first, *others = columns
    return [first, *(each for each in others if any(each.cell(row) != NOTHING for row in rows))]


def _cells(headings: Sequence[Heading], row: Row) -> list[Markup]:
    first, *others = headings
    return [
        tag("th", first.cell(row), scope="row"),
        *(tag("td", column.cell(row), class_=column.kind or None) for column in others),
    ]


def verdict_mark(row: Row) -> Markup:
    """The verdict, in its colour."""
    return tag("span", row["verdict"], class_=row["verdict"] if row["verdict"] in VERDICTS else None)


def on_card(rows: Sequence[Row]) -> Callable[[Row], str]:
    """What names the card of each of these rows in a sentence; nothing where they have one."""
    has_several = len({row["gpu"] for row in rows}) > 1
    return lambda row: f" on {row['gpu']}" if has_several else ""


def naming(rows: Sequence[Row]) -> list[Heading]:
    """The column that names a cell: technique and K, then whatever else tells the cells of these rows apart."""
    names = [
        name for name in ("model", "precision", "engine", "gpu", "run_id") if len({row.get(name) for row in rows}) > 1
    ]

    def cell(row: Row) -> Markup:
        others = [str(row[name]) for name in names if row[name] is not None]
        others += [f"beside {ar_name(row)}"] if row.get("compared_as") and ar_name(row) != "AR" else []
        return join([technique_sign(row), tag("small", " · ".join(others)) if others else None])

    return [Heading("technique", cell, "")]
