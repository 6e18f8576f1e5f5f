"""Plots with two axes: figures of several cells against a number, with the cells' names at the ends of their lines."""

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
    polyline,
    room_for_names,
    svg,
    text,
    tick_label,
)
from warehouse.report.display.figures import TIMES, Row, ar_name, figure, significant, technique_label, technique_sign
from warehouse.report.display.markup import Child, Markup, tag
from warehouse.report.display.view import cell_of, grouped


class Dot(NamedTuple):
    """A point in drawing units, with its CSS classes and the ends of its interval."""

    x: float
    y: float
    kind: str
    low: float | None = None
    high: float | None = None
    is_ringed: bool = False


class Line(NamedTuple):
    """Dots of a cell, at least one; `kind`: CSS classes of the line through them, None: there is none."""

    name: str
    dots: Sequence[Dot]
    kind: str | None = None
    below: Child = None
    """What is drawn before it."""


def drawn_lines(
    lines: Sequence[Line], bottom: float, radius: float, column: float | None = None, gap: float = 4.0
) -> list[Child]:
    """Lines, dots of a radius and intervals, and behind each last dot, at a gap, a lead to the line's name.

    Names stay above `bottom`, and begin at `column`; None: each behind its own last dot.
    """
    drawn: list[Child] = []
    ends = apart([each.dots[-1].y + 4 for each in lines], 13, 16, bottom - 2)
    for (name, dots, kind, below), end in zip(lines, ends, strict=True):
        drawn.append(below)
        if kind is not None:
            drawn.append(polyline([(dot.x, dot.y) for dot in dots], kind))
        for dot in dots:
            if dot.low is not None and dot.high is not None:
                drawn.append(line(dot.x, dot.low, dot.x, dot.high, "whisker"))
            drawn.append(tag("circle", cx=dot.x, cy=dot.y, r=radius, class_=dot.kind))
            if dot.is_ringed:
                drawn.append(tag("circle", cx=dot.x, cy=dot.y, r=7.5, class_="ring"))
        last = dots[-1]
        begins = last.x + 14 if column is None else column
        drawn += [line(last.x + gap, last.y, begins - 2, end - 4, "lead"), text(begins, end, name, "name")]
    return drawn


def speedup_scatter(rows: Sequence[Row]) -> Markup:
    """Speedup over tokens per step, with the line that no correct point lies above."""
    bottom, left = 230.0, 34.0
    x_high = max(2.0, max(steps_of(row) for row in rows)) * 1.06
    y_high = max(2.0, max(row["speedup_hi"] or row["speedup"] for row in rows)) * 1.1
    named = [name_of([row], technique_sign(row)) for row in rows]
    names = WIDTH - room_for_names(named) + 14
    across, up = Scale(1, x_high, left, names - 14), Scale(0, y_high, bottom, 12)
    bound = min(x_high, y_high)
    frame = [
        axis_left(up, left, WIDTH - 4),
        axis_below(across, bottom, None, "tokens per decoding step"),
        line(across.at(1), up.at(1), across.at(bound), up.at(bound), "bound"),
        line(left, up.at(1), WIDTH - 4, up.at(1), "one"),
        text(left + 4, 24, f"{TIMES} AR", "axis"),
    ]
    lines = []
    for row, name in zip(rows, named, strict=True):
        low, high = (None if row[end] is None else up.at(row[end]) for end in ("speedup_lo", "speedup_hi"))
        lines.append(Line(name, [Dot(across.at(steps_of(row)), up.at(row["speedup"]), fill(row), low, high)]))
    gains = [f"{figure(row['speedup'])} {TIMES} {ar_name(row)}, {figure(steps_of(row))} tokens a step" for row in rows]
    said = "; ".join(f"{technique_label(row)}: {gain}" for row, gain in zip(rows, gains, strict=True))
    drawn = drawn_lines(lines, bottom, 4.5, names, gap=6.0)
    return svg("Speedup against tokens per step", said, 270.0, [*frame, *drawn], rows)


def steps_of(row: Row) -> float:
    """Tokens per decoding step; where it isn't known, the acceptance length, which is never more."""
    steps: float = row["acceptance_length"] if row["tokens_per_step"] is None else row["tokens_per_step"]
    return steps


def acceptance_lines(rows: Sequence[Row]) -> Markup:
    """Share of drafts accepted at each draft position; names are at the lines' ends."""
    bottom, left = 230.0, 34.0
    longest = max(len(row["acceptance_by_position"]) for row in rows)
    named = [name_of([row], technique_sign(row)) for row in rows]
    names = WIDTH - room_for_names(named) + 14
    across, up = Scale(1, max(longest, 2), left + 8, names - 14), Scale(0, 1, bottom, 12)
    frame = [
        axis_left(up, left, WIDTH - 4),
        axis_below(across, bottom, None, "draft position", [float(place) for place in range(1, longest + 1)]),
    ]
    lines = []
    for row, name in zip(rows, named, strict=True):
        shares = enumerate(row["acceptance_by_position"], 1)
        dots = [Dot(across.at(place), up.at(share), fill(row)) for place, share in shares]
        lines.append(Line(name, dots, f"line {colour(row['technique'])}"))
    said = "; ".join(
        f"{technique_label(row)}: {', '.join(figure(share) for share in row['acceptance_by_position'])}" for row in rows
    )
    drawn = drawn_lines(lines, bottom, 3.0, names)
    return svg("Acceptance by draft position", said, 270.0, [*frame, *drawn], rows)


class Point(NamedTuple):
    """A figure at a number, and the row that it is of."""

    number: float
    value: float
    row: Row


LEFT, BOTTOM, HEIGHT = 40.0, 226.0, 266.0


def curves(
    title: str,
    unit: str,
    below: str,
    places: Mapping[float, float],
    cells: Sequence[Sequence[Point]],
    *,
    has_bound: bool = False,
) -> Markup:
    """A figure of several cells, in its unit, against a number, which is what is said `below`.

    `places` are those of each number on its axis, by any measure from 0. The bound is a dashed line on which the figure
    is the number itself.
    """
    everything = [point for points in cells for point in points]
    highest = max([point.value for point in everything] + ([*places] if has_bound else []))
    named = [name_of([point.row for point in points], technique_sign(points[0].row)) for points in cells]
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
        drawn.append(polyline(itself, "bound", fill="none"))
    lines = []
    for points, name in zip(cells, named, strict=True):
        dots = [Dot(across.at(places[number]), up.at(value), fill(row)) for number, value, row in points]
        lines.append(Line(name, dots, f"line {colour(points[0].row['technique'])}" if len(dots) > 1 else None))
    drawn += drawn_lines(lines, BOTTOM, 3.0, across.end + 14)
    said = []
    for points in cells:
        values = ", ".join(f"{significant(point.value)} at {point.number:g}" for point in points)
        said.append(f"{technique_label(points[0].row)}: {values}")
    return svg(title, "; ".join(said), HEIGHT, drawn, [point.row for point in everything])


def lines_of(
    rows: Sequence[Row], number: Callable[[Row], float | None], value: Callable[[Row], float | None]
) -> list[list[Point]]:
    """By cell its rows that have a number and a figure, the smallest number first; rejected ones are in tables only."""
    lines = []
    for cell in grouped([row for row in rows if row["verdict"] != "rejected"], cell_of).values():
        known = [(number(row), value(row), row) for row in cell]
        points = [Point(at, shown, row) for at, shown, row in known if at is not None and shown is not None]
        if points:
            lines.append(sorted(points, key=lambda point: (point.number, point.value)))
    return lines


def _labels(across: Scale, places: Mapping[float, float]) -> list[str]:
    labels: list[str] = []
    free = 0.0
    for number, place in places.items():
        at = across.at(place)
        labels.append(tick_label(number) if at >= free else "")
        free = at + 32 if labels[-1] else free  # a number nearer to its neighbour isn't written
    return labels


IN_FLIGHT, PER_SECOND = "requests in flight", "requests offered per second"
"""What a load is counted in."""


def against_load(
    title: str, unit: str, cells: Sequence[Sequence[Point]], loads: str, *, has_bound: bool = False
) -> Markup:
    """`curves` against loads, which are at equal distances and are counted in `loads`."""
    numbers = sorted({point.number for points in cells for point in points})
    first = 1 if len(numbers) == 1 else 0  # a single load stands beside its names
    places = {number: float(at) for at, number in enumerate(numbers, first)}
    return curves(title, unit, loads, places, cells, has_bound=has_bound)
