"""Plots of load: a figure against concurrency, and speedups by category, as SVG."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from warehouse.display.curves import Line, curves
from warehouse.display.drawing import WIDTH, axis_below, colour, line, svg, text
from warehouse.display.figures import TIMES, Row, ar_name, figure, technique_label, technique_sign
from warehouse.display.markup import Child, Markup, tag
from warehouse.display.scale import Scale

CATEGORY_LABELS = 92.0
BAR, GAP, BETWEEN = 9.0, 2.0, 7.0
"""Height of a bar, the space below it, and below a category."""


def against_concurrency(title: str, unit: str, lines: Sequence[Line]) -> Markup:
    """A figure of several cells against requests in flight, which stand at equal distances."""
    numbers = sorted({number for _, points in lines for number, _ in points})
    return curves(title, unit, "requests in flight", {number: float(at) for at, number in enumerate(numbers)}, lines)


def category_bars(categories: Sequence[tuple[str, Sequence[Row]]], what: str = "category") -> Markup:
    """Speedups over AR by category, or `what` else there is a group of, a bar per cell, with the line at 1."""
    rows = [row for _, each in categories for row in each]
    longest = max(max(row["speedup_hi"] or row["speedup"] for row in rows), 1.0)
    scale = Scale(0, longest * 1.02, CATEGORY_LABELS, WIDTH - 34)
    drawn: list[Child] = []
    top = 0.0
    for category, cells in categories:
        middle = top + len(cells) * (BAR + GAP) / 2
        drawn.append(text(CATEGORY_LABELS - 6, middle + 3, category, "end"))
        for row in cells:
            drawn += _bar(row, scale, top)
            top += BAR + GAP
        top += BETWEEN
    one = line(scale.at(1), 0, scale.at(1), top - BETWEEN, "one")
    axis = axis_below(scale, top, 0, f"{TIMES} AR")
    legend, height = _legend(rows, top + 36)
    said = "; ".join(
        f"{category}: "
        + ", ".join(f"{technique_label(row)} {figure(row['speedup'])} {TIMES} {ar_name(row)}" for row in cells)
        for category, cells in categories
    )
    return svg(f"Speedup by {what}", said, height, [axis, one, *drawn, *legend], rows)


def _bar(row: Row, scale: Scale, top: float) -> list[Child]:
    middle, low, high = top + BAR / 2, row["speedup_lo"], row["speedup_hi"]
    width = scale.at(row["speedup"]) - CATEGORY_LABELS
    return [
        tag("rect", x=CATEGORY_LABELS, y=top, width=width, height=BAR, rx=2, class_=f"fill {colour(row['technique'])}"),
        None if low is None else line(scale.at(low), middle, scale.at(high), middle, "whisker"),
        text(scale.at(high or row["speedup"]) + 4, middle + 3.5, figure(row["speedup"]), "value"),
    ]


def _legend(rows: Sequence[Row], top: float) -> tuple[list[Child], float]:
    """A line per cell below the bars: which colour it has, in the order of its bars."""
    named = {technique_sign(row): row for row in rows}
    drawn: list[Child] = []
    for number, (name, row) in enumerate(named.items()):
        y = top + 14 * number
        drawn += [
            tag("rect", x=CATEGORY_LABELS, y=y, width=BAR, height=BAR, rx=2, class_=f"fill {colour(row['technique'])}"),
            text(CATEGORY_LABELS + 14, y + 8.5, name, "name"),
        ]
    return drawn, top + 14 * len(named)


def points_of(rows: Sequence[Row], value: Callable[[Row], float | None]) -> list[tuple[int, float]]:
    """Concurrency and figure of the rows that have one, lightest load first."""
    known = [(int(row["concurrency"]), found) for row in rows if (found := value(row)) is not None]
    return sorted(known)
