"""The plots, as SVG written by hand: they scale, print, follow the colour scheme and need no library.

Drawing units are about CSS pixels at phone width. Every plot has a title and a description for screen readers, and
every figure in it is also in a table beside it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

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
)
from warehouse.report.display.figures import TIMES, Row, ar_name, figure, rate, technique_label, technique_sign
from warehouse.report.display.markup import Child, Markup, join, tag

LABELS, MOST_LABELS = 108.0, 160.0
"""Room for names left of bars, and the most that long ones get of it."""

NAMES, MOST_NAMES = 92.0, 160.0
"""Room for names behind lines, and the most that long ones get of it."""

LETTER = 6.8
"""Width of a name's letters, on average, in a wide font (DejaVu Sans, where a system has no other)."""

BAR, GAP = 13.0, 5.0
"""Height of a bar and the space below it."""


def rate_bars(rows: Sequence[Row]) -> Markup:
    """Tokens per second with intervals, under one condition."""
    usual = usual_precision(rows)
    longest = max(row["tok_s_hi"] or row["tok_s"] for row in rows)
    scale = Scale(0, longest * 1.04, room_for_labels([bar_label(row, usual) for row in rows]), WIDTH - 40)
    bars = [_bar(row, usual, scale, number * (BAR + GAP)) for number, row in enumerate(rows)]
    bottom = len(rows) * (BAR + GAP)
    axis = axis_below(scale, bottom, 0, "tokens per second")
    description = "; ".join(f"{cell_name(row, usual)} {rate(row['tok_s'])}" for row in rows)
    return svg("Tokens per second", description, bottom + 34, [axis, *bars], rows)


def usual_precision(rows: Sequence[Row]) -> str:
    """The precision of most rows."""
    return Counter(str(row["precision"]) for row in rows).most_common(1)[0][0]


def cell_name(row: Row, usual: str) -> str:
    """Technique, K and signs; the precision only if it isn't the usual one."""
    name = technique_sign(row)
    return name if row["precision"] == usual else f"{name} {row['precision']}"


def bar_label(row: Row, usual: str) -> str:
    """The name of a bar; one that isn't ok has a mark."""
    return name_of([row], cell_name(row, usual))


def room_for_names(names: Sequence[str]) -> float:
    """What names take behind their lines."""
    return min(MOST_NAMES, max(NAMES, 18 + LETTER * max(map(len, names))))


def room_for_labels(names: Sequence[str]) -> float:
    """What names take left of their bars."""
    return min(MOST_LABELS, max(LABELS, 10 + LETTER * max(map(len, names))))


def _bar(row: Row, usual: str, scale: Scale, top: float) -> Markup:
    """One bar; a row that isn't ok is pale and has a mark at its name."""
    middle, low, high = top + BAR / 2, row["tok_s_lo"], row["tok_s_hi"]
    return join(
        [
            text(scale.start - 6, middle + 4, bar_label(row, usual), "end"),
            tag(
                "rect",
                x=scale.start,
                y=top,
                width=scale.at(row["tok_s"]) - scale.start,
                height=BAR,
                rx=2,
                class_=fill(row),
            ),
            None if low is None else line(scale.at(low), middle, scale.at(high), middle, "whisker"),
            text(scale.at(high or row["tok_s"]) + 5, middle + 4, rate(row["tok_s"]), "value"),
        ]
    )


def speedup_scatter(rows: Sequence[Row]) -> Markup:
    """Speedup over tokens per step, with the line that no honest point lies above."""
    height, bottom, left = 270.0, 230.0, 34.0
    x_high = max(2.0, max(steps_of(row) for row in rows)) * 1.06
    y_high = max(2.0, max(row["speedup_hi"] or row["speedup"] for row in rows)) * 1.1
    named = [name_of([row], technique_sign(row)) for row in rows]
    names = WIDTH - room_for_names(named) + 14
    across, up = Scale(1, x_high, left, names - 14), Scale(0, y_high, bottom, 12)
    bound = min(x_high, y_high)
    drawn: list[Child] = [
        axis_left(up, left, WIDTH - 4),
        axis_below(across, bottom, None, "tokens per decoding step"),
        line(across.at(1), up.at(1), across.at(bound), up.at(bound), "bound"),
        line(left, up.at(1), WIDTH - 4, up.at(1), "one"),
        text(left + 4, 24, f"{TIMES} AR", "axis"),
    ]
    places = apart([up.at(row["speedup"]) + 4 for row in rows], 13, 16, bottom - 2)
    for row, name, place in zip(rows, named, places, strict=True):
        x, y = across.at(steps_of(row)), up.at(row["speedup"])
        if row["speedup_lo"] is not None:
            drawn.append(line(x, up.at(row["speedup_lo"]), x, up.at(row["speedup_hi"]), "whisker"))
        drawn += [
            tag("circle", cx=x, cy=y, r=4.5, class_=fill(row)),
            line(x + 6, y, names - 2, place - 4, "lead"),
            text(names, place, name, "name"),
        ]
    description = "; ".join(
        f"{technique_label(row)}: {figure(row['speedup'])} {TIMES} {ar_name(row)}, "
        f"{figure(steps_of(row))} tokens a step"
        for row in rows
    )
    return svg("Speedup against tokens per step", description, height, drawn, rows)


def steps_of(row: Row) -> float:
    """Tokens per decoding step; where it isn't known, the acceptance length, which is never more."""
    steps: float = row["acceptance_length"] if row["tokens_per_step"] is None else row["tokens_per_step"]
    return steps


def acceptance_lines(rows: Sequence[Row]) -> Markup:
    """Share of drafts accepted at each draft position; names stand at the lines' ends."""
    height, bottom, left = 270.0, 230.0, 34.0
    longest = max(len(row["acceptance_by_position"]) for row in rows)
    # one column, also for a line that ends before others
    named = [name_of([row], technique_sign(row)) for row in rows]
    names = WIDTH - room_for_names(named) + 14
    across, up = Scale(1, max(longest, 2), left + 8, names - 14), Scale(0, 1, bottom, 12)
    drawn: list[Child] = [
        axis_left(up, left, WIDTH - 4),
        axis_below(across, bottom, None, "draft position", [float(place) for place in range(1, longest + 1)]),
    ]
    ends = apart([up.at(row["acceptance_by_position"][-1]) + 4 for row in rows], 13, 16, bottom - 2)
    for row, name, end in zip(rows, named, ends, strict=True):
        points = [(across.at(place), up.at(share)) for place, share in enumerate(row["acceptance_by_position"], 1)]
        x, y = points[-1]
        drawn += [
            tag(
                "polyline",
                points=" ".join(f"{px:.1f},{py:.1f}" for px, py in points),
                class_=f"line {colour(row['technique'])}",
            ),
            *(tag("circle", cx=px, cy=py, r=3.0, class_=fill(row)) for px, py in points),
            line(x + 4, y, names - 2, end - 4, "lead"),
            text(names, end, name, "name"),
        ]
    description = "; ".join(
        f"{technique_label(row)}: {', '.join(figure(share) for share in row['acceptance_by_position'])}" for row in rows
    )
    return svg("Acceptance by draft position", description, height, drawn, rows)


def score_dots(rows: Sequence[Row]) -> Markup:
    """Scores with 95 % intervals over items, each of one arm; differences are in the table of pairs."""
    usual = usual_precision(rows)
    scale = Scale(0, 1, room_for_labels([bar_label(row, usual) for row in rows]), WIDTH - 12)
    drawn: list[Child] = []
    for number, row in enumerate(rows):
        middle = 12 + number * 20.0
        low, high = row["score_lo"], row["score_hi"]
        drawn += [
            text(scale.start - 6, middle + 4, bar_label(row, usual), "end"),
            line(scale.at(low), middle, scale.at(high), middle, "whisker"),
            tag("circle", cx=scale.at(row["score"]), cy=middle, r=4.5, class_=fill(row)),
        ]
    top = 12 + len(rows) * 20.0 - 6
    description = "; ".join(f"{technique_label(row)} {figure(row['score'], 3)} of {row['n']}" for row in rows)
    axis = axis_below(scale, top, 0, "accuracy and 95 % interval")
    return svg("Accuracy", description, top + 32, [axis, *drawn], rows)


PHASE_COLOURS = {"measure": "c1", "lost": "c2"}
"""What was worth its money, and what was thrown away; other phases are grey."""


def phase_bars(phases: Sequence[tuple[str, float, str]]) -> Markup:
    """What a bill was for: name, share (0 to 1) and label of every phase."""
    scale = Scale(0, max(max(share for _, share, _ in phases), 0.01), LABELS - 30, WIDTH - 96)
    drawn: list[Child] = []
    for number, (name, share, label) in enumerate(phases):
        top = number * (BAR + GAP)
        colour_class = f"fill {PHASE_COLOURS.get(name, 'c0')}"
        drawn += [
            text(LABELS - 36, top + BAR / 2 + 4, name, "end"),
            tag(
                "rect", x=scale.start, y=top, width=scale.at(share) - scale.start, height=BAR, rx=2, class_=colour_class
            ),
            text(scale.at(share) + 5, top + BAR / 2 + 4, label, "value"),
        ]
    description = "; ".join(f"{name} {label}" for name, _, label in phases)
    return svg("The bill by phase", description, len(phases) * (BAR + GAP), drawn)
