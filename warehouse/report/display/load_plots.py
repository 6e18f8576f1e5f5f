"""Plots of load: a figure against concurrency or rate, and speedups by category, as SVG."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from warehouse.report.display.curves import Line, curves
from warehouse.report.display.drawing import WIDTH, Scale, axis_below, colour, line, svg, text
from warehouse.report.display.figures import TIMES, Row, ar_name, figure, technique_label, technique_sign
from warehouse.report.display.markup import Child, Markup, tag
from warehouse.report.display.section import FEWEST_BARS, plot

IN_FLIGHT, PER_SECOND = "requests in flight", "requests offered per second"
"""What a load is counted in."""

PALEST = 0.4
"""Opacity of the smallest K's bar among those of one colour; the largest has all of it."""

CATEGORY_LABELS = 92.0
BAR, GAP, BETWEEN = 9.0, 2.0, 7.0
"""Height of a bar, the space below it, and below a category."""


def against_load(title: str, unit: str, lines: Sequence[Line], loads: str, *, has_bound: bool = False) -> Markup:
    """A figure of several cells against loads, which stand at equal distances.

    Args:
        title: of the drawing.
        unit: of the figure.
        lines: one per cell.
        loads: what they are counted in.
        has_bound: whether there is a dashed line, on which the figure is the load itself.
    """
    numbers = sorted({point.number for points in lines for point in points})
    first = 1 if len(numbers) == 1 else 0  # a single load stands beside its names
    places = {number: float(at) for at, number in enumerate(numbers, first)}
    return curves(title, unit, loads, places, lines, has_bound=has_bound)


def speedup_plots(
    rows: Sequence[Row], what: str, name_of: Callable[[Row], str], names: Sequence[str], loads: Sequence[int], note: str
) -> list[Markup]:
    """Speedups by `what` at each of some loads.

    Args:
        rows: with a speedup, of one bench.
        what: a group of bars is.
        name_of: the group of a row.
        names: groups, in their order.
        loads: requests in flight.
        note: what the plots are of.
    """
    made = []
    for number in loads:
        here = [row for row in rows if row["concurrency"] == number]
        groups = [(name, found) for name in names if (found := [row for row in here if name_of(row) == name])]
        if len(here) >= FEWEST_BARS:
            made.append(plot(f"Speedup by {what}, {number} in flight", note, category_bars(groups, what)))
    return made


def category_bars(categories: Sequence[tuple[str, Sequence[Row]]], what: str = "category") -> Markup:
    """Speedups over AR by category, or `what` else there is a group of, a bar per cell, with the line at 1."""
    rows = [row for _, each in categories for row in each]
    longest = max(max(row["speedup_hi"] or row["speedup"] for row in rows), 1.0)
    scale = Scale(0, longest * 1.02, CATEGORY_LABELS, WIDTH - 34)
    drawn: list[Child] = []
    top, opacity = 0.0, _opacities(rows)
    for category, cells in categories:
        middle = top + len(cells) * (BAR + GAP) / 2
        drawn.append(text(CATEGORY_LABELS - 6, middle + 3, category, "end"))
        for row in cells:
            drawn += _bar(row, scale, top, opacity[technique_sign(row)])
            top += BAR + GAP
        top += BETWEEN
    one = line(scale.at(1), 0, scale.at(1), top - BETWEEN, "one")
    axis = axis_below(scale, top, 0, f"{TIMES} AR")
    legend, height = _legend(rows, top + 36, opacity)
    said = "; ".join(
        f"{category}: "
        + ", ".join(f"{technique_label(row)} {figure(row['speedup'])} {TIMES} {ar_name(row)}" for row in cells)
        for category, cells in categories
    )
    return svg(f"Speedup by {what}", said, height, [axis, one, *drawn, *legend], rows)


def _opacities(rows: Sequence[Row]) -> dict[str, float]:
    """By a cell's name: bars of one technique have its colour, and the larger their K the more of it."""
    named = {technique_sign(row): row for row in rows}
    kinds: dict[str, list[str]] = {}
    for name, row in sorted(named.items(), key=lambda each: (each[1]["k"] or 0, each[0])):
        kinds.setdefault(colour(row["technique"]), []).append(name)
    return {
        name: 1 - (1 - PALEST) * (len(names) - 1 - place) / max(1, len(names) - 1)
        for names in kinds.values()
        for place, name in enumerate(names)
    }


def _bar(row: Row, scale: Scale, top: float, opacity: float) -> list[Child]:
    middle, low, high = top + BAR / 2, row["speedup_lo"], row["speedup_hi"]
    width = scale.at(row["speedup"]) - CATEGORY_LABELS
    return [
        _block(row, top, width, opacity),
        None if low is None else line(scale.at(low), middle, scale.at(high), middle, "whisker"),
        text(scale.at(high or row["speedup"]) + 4, middle + 3.5, figure(row["speedup"]), "value"),
    ]


def _block(row: Row, top: float, width: float, opacity: float) -> Markup:
    kind = f"fill {colour(row['technique'])}"
    return tag("rect", x=CATEGORY_LABELS, y=top, width=width, height=BAR, rx=2, class_=kind, fill_opacity=opacity)


def _legend(rows: Sequence[Row], top: float, opacity: dict[str, float]) -> tuple[list[Child], float]:
    """A line per cell below the bars: which colour it has, in the order of its bars."""
    named = {technique_sign(row): row for row in rows}
    drawn: list[Child] = []
    for number, (name, row) in enumerate(named.items()):
        y = top + 14 * number
        drawn += [
            _block(row, y, BAR, opacity[name]),
            text(CATEGORY_LABELS + 14, y + 8.5, name, "name"),
        ]
    return drawn, top + 14 * len(named)
