"""HTML that can't forget to escape, and what the page is made of: sections with plots.

A plain `str` is text and is escaped wherever it goes; only `tag`, `join` and constants of our own make `Markup`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from html import escape
from typing import NamedTuple

from warehouse.report.display.figures import Row
from warehouse.report.display.view import View


class Markup(str):
    """HTML that is already safe. Never wrap text from data in this."""

    __slots__ = ()


Child = str | Markup | None
"""What an element may contain; None is left out."""


def tag(name: str, /, *children: Child, **attributes: str | int | float | None) -> Markup:
    """An element. `class_` means `class`, `aria_label` means `aria-label`, `view_box` is SVG's `viewBox`."""
    written = ""
    for key, value in attributes.items():
        if value is not None:
            called = "viewBox" if key == "view_box" else key.rstrip("_").replace("_", "-")
            said = f"{value:.1f}".removesuffix(".0") if isinstance(value, float) else str(value)
            written += f' {called}="{escape(said)}"'
    if name == "meta":  # has no end tag
        return Markup(f"<{name}{written}>")
    return Markup(f"<{name}{written}>{join(children)}</{name}>")


def join(children: Iterable[Child]) -> Markup:
    """Elements and texts one after the other."""
    known = (child for child in children if child is not None)
    return Markup("".join(child if isinstance(child, Markup) else escape(child) for child in known))


FEWEST_BARS = 2
"""Of a drawing whose bars are compared with one another: a single one says no more than its row of the table."""


def apart(rows: Sequence[Row], ratios: str) -> str:
    """A note for a drawing whose bars are not of one machine in one run, and what there is to compare instead."""
    places = several(rows)
    return f" Of {places}: compare {ratios}, not bars." if places else ""


def several(rows: Sequence[Row]) -> str:
    """`2 runs`, or `2 machines` of one; empty: all are of one machine in one run."""
    runs, machines = ({row[name] for row in rows} for name in ("run_id", "machine"))
    return f"{len(runs)} runs" if len(runs) > 1 else f"{len(machines)} machines" if len(machines) > 1 else ""


class Section(NamedTuple):
    """A section that a step, or the page itself, contributes: `anchor` and `name` are for the table of contents."""

    anchor: str
    name: str
    make: Callable[[View], Markup | None]
    """Returns None where it has nothing to say."""
    place: int = 90
    """Sections are sorted by it; where a step names none, after all other steps', before the flagged rows."""


def section(anchor: str, title: str, lead: str, *content: Child) -> Markup:
    """A titled part of the page with one sentence on how to read it."""
    return tag("section", tag("h2", title), tag("p", lead, class_="lead"), *content, id=anchor)


def part(title: str, lead: str, content: Child) -> Markup:
    """What a section shows under a title of its own."""
    return join([tag("h3", title), tag("p", lead, class_="lead"), content])


def plot(title: str, note: str, drawing: Markup) -> Markup:
    """A drawing with its caption."""
    return tag("figure", tag("figcaption", tag("b", title), " ", note), drawing)


def plots_of(drawings: Sequence[Markup]) -> Markup | None:
    """Drawings side by side, as many as fit; None: there is none."""
    return tag("div", *drawings, class_="plots") if drawings else None
