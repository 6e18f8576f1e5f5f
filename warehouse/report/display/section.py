"""A section of the page: a title, one sentence on how to read it, and what it shows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from warehouse.report.display.figures import Row
from warehouse.report.display.markup import Child, Markup, tag
from warehouse.report.display.view import View

LAST_OF_STEPS = 90
"""Place of a step's section that names none: after all other steps', before the flagged rows."""

FEWEST_BARS = 2
"""Of a drawing whose bars are compared with one another: a single one says no more than its row of the table."""


def apart(rows: Sequence[Row], ratios: str) -> str:
    """A word for a drawing whose bars are not of one machine in one run, and what there is to compare instead."""
    places = several(rows)
    return f" Of {places}: compare {ratios}, not bars." if places else ""


def several(rows: Sequence[Row]) -> str:
    """`2 runs`, or `2 machines` of one; empty: all are of one machine in one run."""
    runs, machines = ({row[name] for row in rows} for name in ("run_id", "machine"))
    return f"{len(runs)} runs" if len(runs) > 1 else f"{len(machines)} machines" if len(machines) > 1 else ""


class Section(NamedTuple):
    """A section that a step, or the page itself, contributes.

    `anchor` and `name` are for the table of contents. `make` returns None where it has nothing to say. Sections are
    sorted by `place`.
    """

    anchor: str
    name: str
    make: Callable[[View], Markup | None]
    place: int = LAST_OF_STEPS


def section(anchor: str, title: str, lead: str, *content: Child) -> Markup:
    """A titled part of the page with one sentence on how to read it."""
    return tag("section", tag("h2", title), tag("p", lead, class_="lead"), *content, id=anchor)


def plot(title: str, note: str, drawing: Markup) -> Markup:
    """A drawing with its caption."""
    return tag("figure", tag("figcaption", tag("b", title), " ", note), drawing)
