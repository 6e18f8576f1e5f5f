"""What every plot is drawn with: the frame, linear scales with round ticks, axes, and the colours of techniques.

Plots are SVG written by hand: they scale, print, follow the colour scheme and need no library. Drawing units are about
CSS pixels at phone width. Every figure in a plot is also in a table next to it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from warehouse.report.display.figures import Mark, Row, marks
from warehouse.report.display.markup import Child, Markup, join, tag


class Scale(NamedTuple):
    """Maps low ... high of the data to start ... end of the drawing, in drawing units."""

    low: float
    high: float
    start: float
    end: float

    def at(self, value: float) -> float:
        """Place of a value; one outside the scale is put on its edge."""
        share = (min(max(value, self.low), self.high) - self.low) / (self.high - self.low)
        return self.start + share * (self.end - self.start)

    def ticks(self) -> list[float]:
        """Round values inside the scale, 1, 2 or 5 times a power of ten apart; more than some 5 would crowd a phone."""
        rough = (self.high - self.low) / 5
        magnitude = 10.0 ** math.floor(math.log10(rough))
        step = magnitude * min((factor for factor in (1, 2, 5, 10) if factor * magnitude >= rough), default=10)
        first = math.ceil(self.low / step - 1e-9)
        return [number * step for number in range(first, math.floor(self.high / step + 1e-9) + 1)]


def tick_label(value: float) -> str:
    """A tick without needless zeros; thousands as k."""
    return f"{value / 1000:g}k" if abs(value) >= 10_000 else f"{value:g}"


def apart(places: list[float], gap: float, low: float, high: float) -> list[float]:
    """The same places, in the same order, moved so that neighbours are `gap` apart and all lie in low ... high."""
    order = sorted(range(len(places)), key=places.__getitem__)
    moved = list(places)
    floor = low
    for index in order:
        moved[index] = floor = max(moved[index], floor)
        floor += gap
    ceiling = high
    for index in reversed(order):
        moved[index] = ceiling = min(moved[index], ceiling)
        ceiling -= gap
    return moved


WIDTH = 330.0
"""Width of every drawing."""

LETTER = 6.8
"""Width of a name's letters, on average, in a wide font (DejaVu Sans, where a system has no other)."""


def room_for_names(names: Sequence[str], least: float = 92.0, beside: float = 18.0) -> float:
    """What names take behind their lines, or left of their bars; long ones don't get all that they would."""
    return min(160.0, max(least, beside + LETTER * max(map(len, names))))


COLOURS = ("ar", "mtp", "dflash", "draft_model", "ngram", "suffix", "eagle3", "diffusion")
"""Techniques with a colour of their own, the same in every plot; all others share one more."""


def colour(technique: str) -> str:
    """CSS class that colours a technique."""
    return f"c{COLOURS.index(technique) if technique in COLOURS else len(COLOURS)}"


LEGEND = 14.0
"""Height of each line below a drawing that says what one of its signs means."""


NOT_OK = Mark("!", "pale: not ok, in no comparison")
"""Sign of a bar or point that is drawn for a row that isn't ok."""


def fill(row: Row) -> str:
    """CSS classes of the bar or point that is drawn for a row: its technique's colour, pale where it isn't ok."""
    return f"fill {colour(row['technique'])}" + ("" if row["verdict"] == "ok" else " flagged")


def name_of(rows: Sequence[Row], name: str) -> str:
    """The name that a drawing gives to these rows of a cell, with a mark where any of them is drawn pale."""
    return name if all(row["verdict"] == "ok" for row in rows) else f"{name} {NOT_OK.sign}"


def svg(title: str, description: str, height: float, children: Iterable[Child], rows: Sequence[Row] = ()) -> Markup:
    """A drawing with a title and a description for screen readers; below it, what the signs of its rows mean."""
    signs: dict[Mark, None] = dict.fromkeys(mark for row in rows for mark in marks(row))
    if any(row["verdict"] != "ok" for row in rows):
        signs[NOT_OK] = None
    legend = [
        text(4, height + LEGEND * at - 4, f"{mark.sign} {mark.words}", "axis") for at, mark in enumerate(signs, 1)
    ]
    return tag(
        "svg",
        tag("title", title),
        tag("desc", description),
        *children,
        *legend,
        view_box=f"0 0 {WIDTH:g} {height + LEGEND * len(legend):g}",
        role="img",
        xmlns="http://www.w3.org/2000/svg",
    )


def text(x: float, y: float, words: str, kind: str) -> Markup:
    """Words at a place."""
    return tag("text", words, x=x, y=y, class_=kind)


def line(x1: float, y1: float, x2: float, y2: float, kind: str) -> Markup:
    """A straight line."""
    return tag("line", x1=x1, y1=y1, x2=x2, y2=y2, class_=kind)


def axis_below(
    scale: Scale,
    bottom: float,
    top: float | None,
    title: str,
    ticks: Sequence[float] | None = None,
    labels: Sequence[str] | None = None,
) -> Markup:
    """An axis below the drawing, with grid lines up to `top` if there is one; ticks are named by their value, or so."""
    places = scale.ticks() if ticks is None else ticks
    drawn: list[Child] = []
    for tick, label in zip(places, labels or map(tick_label, places), strict=True):
        x = scale.at(tick)
        drawn.append(line(x, bottom if top is None else top, x, bottom + 4, "grid"))
        drawn.append(text(x, bottom + 15, label, "axis middle"))
    return join([*drawn, text((scale.start + scale.end) / 2, bottom + 29, title, "axis middle")])


def axis_left(scale: Scale, left: float, right: float) -> Markup:
    """An axis at the left with grid lines to `right`."""
    drawn: list[Child] = []
    for tick in scale.ticks():
        y = scale.at(tick)
        drawn += [line(left, y, right, y, "grid"), text(left - 5, y + 4, tick_label(round(tick, 9)), "axis end")]
    return join(drawn)


def polyline(at: Sequence[tuple[float, float]], kind: str, **attributes: str) -> Markup:
    """A line through points."""
    return tag("polyline", points=" ".join(f"{x:.1f},{y:.1f}" for x, y in at), class_=kind, **attributes)
