"""Plots of load: a figure against concurrency or rate, and speedups by category, as SVG."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from warehouse.display.drawing import WIDTH, axis_below, axis_left, colour, line, svg, text
from warehouse.display.figures import TIMES, Row, ar_name, figure, technique_label, technique_sign
from warehouse.display.markup import Child, Markup, tag
from warehouse.display.scale import Scale, apart, tick_label

Line = tuple[Row, Sequence[tuple[float, float]]]
"""A row that names its cell, and its points: load and figure."""

IN_FLIGHT, PER_SECOND = "requests in flight", "requests offered per second"
"""What a load is counted in."""

LEFT, BOTTOM, HEIGHT = 40.0, 226.0, 266.0
NAMES = 92.0
"""Room for names behind the lines."""

CATEGORY_LABELS = 92.0
BAR, GAP, BETWEEN = 9.0, 2.0, 7.0
"""Height of a bar, the space below it, and below a category."""


def against_load(title: str, unit: str, lines: Sequence[Line], loads: str, most: str | None = None) -> Markup:
    """A figure of several cells against loads, which stand at equal distances.

    Args:
        title: of the drawing.
        unit: of the figure.
        lines: one per cell.
        loads: what they are counted in.
        most: words for the line on which the figure is the load itself, and above which it can't be; None: no such one.
    """
    numbers = sorted({number for _, points in lines for number, _ in points})
    place = {number: float(at) for at, number in enumerate(numbers)}
    highest = max([value for _, points in lines for _, value in points] + (numbers if most else []))
    across = Scale(0, max(1.0, len(numbers) - 1), LEFT + 8, WIDTH - NAMES)
    up = Scale(0, highest * 1.08 or 1.0, BOTTOM, 20)
    drawn: list[Child] = [
        axis_left(up, LEFT, WIDTH - 4),
        axis_below(across, BOTTOM, None, loads, [*place.values()], [tick_label(each) for each in numbers]),
        text(LEFT + 4, 12, unit, "axis"),
    ]
    if most is not None and len(numbers) > 1:
        drawn += _itself([(across.at(place[number]), up.at(number)) for number in numbers], most)
    ends = apart([up.at(points[-1][1]) + 4 for _, points in lines], 13, 16, BOTTOM - 2)
    for (row, points), end in zip(lines, ends, strict=True):
        at = [(across.at(place[number]), up.at(value)) for number, value in points]
        kind = colour(row["technique"])
        if len(at) > 1:
            drawn.append(tag("polyline", points=" ".join(f"{x:.1f},{y:.1f}" for x, y in at), class_=f"line {kind}"))
        drawn += [tag("circle", cx=x, cy=y, r=3.0, class_=f"fill {kind}") for x, y in at]
        x, y = at[-1]
        drawn += [line(x + 4, y, x + 12, end - 4, "lead"), text(x + 14, end, technique_sign(row), "name")]
    said = "; ".join(f"{technique_label(row)}: {_points(points)}" for row, points in lines)
    return svg(title, said, HEIGHT, drawn, [row for row, _ in lines])


def _itself(at: Sequence[tuple[float, float]], words: str) -> list[Child]:
    """A dashed line, with its words above its middle."""
    middle = at[len(at) // 2]
    return [
        tag("polyline", points=" ".join(f"{x:.1f},{y:.1f}" for x, y in at), class_="bound", fill="none"),
        text(middle[0] - 6, middle[1] - 4, words, "axis end"),
    ]


def _points(points: Sequence[tuple[float, float]]) -> str:
    return ", ".join(f"{figure(value, 1)} at {number:g}" for number, value in points)


def category_bars(categories: Sequence[tuple[str, Sequence[Row]]]) -> Markup:
    """Speedups over AR by category, a bar per cell, with the line at 1."""
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
    return svg("Speedup by category", said, height, [axis, one, *drawn, *legend], rows)


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


def points_of(
    rows: Sequence[Row], load: Callable[[Row], float | None], value: Callable[[Row], float | None]
) -> list[tuple[float, float]]:
    """Load and figure of the rows that have both, lightest load first."""
    known = [(load(row), value(row)) for row in rows]
    return sorted((number, found) for number, found in known if number is not None and found is not None)
