"""Figures of several cells against a number, as lines with the cells' names at their ends."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from warehouse.report.display.drawing import (
    WIDTH,
    Scale,
    apart,
    axis_below,
    axis_left,
    colour,
    fill,
    line,
    name_of,
    svg,
    text,
    tick_label,
)
from warehouse.report.display.figures import Row, significant, technique_label, technique_sign
from warehouse.report.display.markup import Child, Markup, tag
from warehouse.report.display.plots import room_for_names


class Point(NamedTuple):
    """A figure at a number, and the row that it is of."""

    number: float
    value: float
    row: Row


Line = Sequence[Point]
"""Points of a cell, at least one."""

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
    highest = max([point.value for points in lines for point in points] + ([*places] if has_bound else []))
    named = [name_of([point.row for point in points], technique_sign(points[0].row)) for points in lines]
    across = Scale(0, max([1.0, *places.values()]), LEFT + 8, WIDTH - room_for_names(named))
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
    ends = apart([up.at(points[-1].value) + 4 for points in lines], 13, 16, BOTTOM - 2)
    for points, name, end in zip(lines, named, ends, strict=True):
        at = [(across.at(places[point.number]), up.at(point.value)) for point in points]
        kind = f"line {colour(points[0].row['technique'])}"
        if len(at) > 1:
            drawn.append(tag("polyline", points=" ".join(f"{x:.1f},{y:.1f}" for x, y in at), class_=kind))
        drawn += [
            tag("circle", cx=x, cy=y, r=3.0, class_=fill(point.row)) for point, (x, y) in zip(points, at, strict=True)
        ]
        x, y = at[-1]
        names = across.end + 14  # one column, also for a line that ends before others
        drawn += [line(x + 4, y, names - 2, end - 4, "lead"), text(names, end, name, "name")]
    said = "; ".join(f"{technique_label(points[0].row)}: {_points(points)}" for points in lines)
    return svg(title, said, HEIGHT, drawn, [point.row for points in lines for point in points])


def points_of(
    rows: Sequence[Row], number: Callable[[Row], float | None], value: Callable[[Row], float | None]
) -> list[Point]:
    """Number and figure of the rows that have both, the smallest number first."""
    known = [(number(row), value(row), row) for row in rows]
    found = [Point(at, shown, row) for at, shown, row in known if at is not None and shown is not None]
    return sorted(found, key=lambda point: (point.number, point.value))


def _labels(across: Scale, places: Mapping[float, float]) -> list[str]:
    labels: list[str] = []
    free = 0.0
    for number, place in places.items():
        at = across.at(place)
        labels.append(tick_label(number) if at >= free else "")
        free = at + LABEL if labels[-1] else free
    return labels


def _points(points: Line) -> str:
    return ", ".join(f"{significant(point.value)} at {point.number:g}" for point in points)
