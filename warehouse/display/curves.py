"""Figures of several cells against a number, as lines with the cells' names at their ends."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from warehouse.display.drawing import WIDTH, axis_below, axis_left, colour, line, svg, text
from warehouse.display.figures import Row, figure, technique_label, technique_sign
from warehouse.display.markup import Child, Markup, tag
from warehouse.display.scale import Scale, apart

Line = tuple[Row, Sequence[tuple[int, float]]]
"""A row that names its cell, and its points: number and figure."""

LEFT, BOTTOM, HEIGHT = 40.0, 226.0, 266.0
NAMES = 92.0
"""Room for names behind the lines."""

LABEL = 32.0
"""Least distance of two numbers below the axis; one that is nearer to its neighbour isn't written."""


def curves(title: str, unit: str, below: str, places: Mapping[int, float], lines: Sequence[Line]) -> Markup:
    """A figure of several cells against a number.

    Args:
        title: of the drawing.
        unit: of the figure.
        below: what the number is.
        places: where each number stands on its axis, by any measure from 0.
        lines: of the cells.
    """
    highest = max(value for _, points in lines for _, value in points)
    across = Scale(0, max([1.0, *places.values()]), LEFT + 8, WIDTH - NAMES)
    up = Scale(0, highest * 1.08 or 1.0, BOTTOM, 20)
    drawn: list[Child] = [
        axis_left(up, LEFT, WIDTH - 4),
        axis_below(across, BOTTOM, None, below, [*places.values()], _labels(across, places)),
        text(LEFT + 4, 12, unit, "axis"),
    ]
    ends = apart([up.at(points[-1][1]) + 4 for _, points in lines], 13, 16, BOTTOM - 2)
    for (row, points), end in zip(lines, ends, strict=True):
        at = [(across.at(places[number]), up.at(value)) for number, value in points]
        kind = colour(row["technique"])
        if len(at) > 1:
            drawn.append(tag("polyline", points=" ".join(f"{x:.1f},{y:.1f}" for x, y in at), class_=f"line {kind}"))
        drawn += [tag("circle", cx=x, cy=y, r=3.0, class_=f"fill {kind}") for x, y in at]
        x, y = at[-1]
        drawn += [line(x + 4, y, x + 12, end - 4, "lead"), text(x + 14, end, technique_sign(row), "name")]
    said = "; ".join(f"{technique_label(row)}: {_points(points)}" for row, points in lines)
    return svg(title, said, HEIGHT, drawn, [row for row, _ in lines])


def _labels(across: Scale, places: Mapping[int, float]) -> list[str]:
    labels: list[str] = []
    free = 0.0
    for number, place in places.items():
        at = across.at(place)
        labels.append(str(number) if at >= free else "")
        free = at + LABEL if labels[-1] else free
    return labels


def _points(points: Sequence[tuple[int, float]]) -> str:
    return ", ".join(f"{figure(value, 1)} at {number}" for number, value in points)
