"""Figures of several cells against a number, as lines with the cells' names at their ends."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from warehouse.display.drawing import WIDTH, axis_below, axis_left, colour, line, svg, text
from warehouse.display.figures import Row, figure, technique_label, technique_sign
from warehouse.display.markup import Child, Markup, tag
from warehouse.display.plots import room_for_names
from warehouse.display.scale import Scale, apart, tick_label

Line = tuple[Row, Sequence[tuple[float, float]]]
"""A row that names its cell, and its points: number and figure."""

LEFT, BOTTOM, HEIGHT = 40.0, 226.0, 266.0
LABEL = 32.0
"""Least distance of two numbers below the axis; one that is nearer to its neighbour isn't written."""


def curves(
    title: str,
    unit: str,
    below: str,
    places: Mapping[float, float],
    lines: Sequence[Line],
    *,
    has_bound: bool = False,
) -> Markup:
    """A figure of several cells against a number.

    Args:
        title: of the drawing.
        unit: of the figure.
        below: what the number is.
        places: where each number stands on its axis, by any measure from 0.
        lines: of the cells.
        has_bound: whether there is a dashed line, on which the figure is the number itself.
    """
    highest = max([value for _, points in lines for _, value in points] + ([*places] if has_bound else []))
    across = Scale(
        0, max([1.0, *places.values()]), LEFT + 8, WIDTH - room_for_names([technique_sign(row) for row, _ in lines])
    )
    up = Scale(0, highest * 1.08 or 1.0, BOTTOM, 20)
    drawn: list[Child] = [
        axis_left(up, LEFT, WIDTH - 4),
        axis_below(across, BOTTOM, None, below, [*places.values()], _labels(across, places)),
        text(LEFT + 4, 12, unit, "axis"),
    ]
    if has_bound:
        itself = [(across.at(place), up.at(number)) for number, place in places.items()]
        if len(itself) == 1:  # a level line to the only one
            itself = [(LEFT, itself[0][1]), *itself]
        drawn.append(
            tag("polyline", points=" ".join(f"{x:.1f},{y:.1f}" for x, y in itself), class_="bound", fill="none")
        )
    ends = apart([up.at(points[-1][1]) + 4 for _, points in lines], 13, 16, BOTTOM - 2)
    for (row, points), end in zip(lines, ends, strict=True):
        at = [(across.at(places[number]), up.at(value)) for number, value in points]
        kind = colour(row["technique"])
        if len(at) > 1:
            drawn.append(tag("polyline", points=" ".join(f"{x:.1f},{y:.1f}" for x, y in at), class_=f"line {kind}"))
        drawn += [tag("circle", cx=x, cy=y, r=3.0, class_=f"fill {kind}") for x, y in at]
        x, y = at[-1]
        names = across.end + 14  # one column, also for a line that ends before others
        drawn += [line(x + 4, y, names - 2, end - 4, "lead"), text(names, end, technique_sign(row), "name")]
    said = "; ".join(f"{technique_label(row)}: {_points(points)}" for row, points in lines)
    return svg(title, said, HEIGHT, drawn, [row for row, _ in lines])


def _labels(across: Scale, places: Mapping[float, float]) -> list[str]:
    labels: list[str] = []
    free = 0.0
    for number, place in places.items():
        at = across.at(place)
        labels.append(tick_label(number) if at >= free else "")
        free = at + LABEL if labels[-1] else free
    return labels


def _points(points: Sequence[tuple[float, float]]) -> str:
    return ", ".join(f"{figure(value, 1)} at {number:g}" for number, value in points)
