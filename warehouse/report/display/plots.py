"""Plots with bars or dots, one below the other: rates, scores, bills, speedups in groups."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from warehouse.report.display import drawing
from warehouse.report.display.drawing import WIDTH, Scale, axis_below, colour, fill, line, name_of, svg, text
from warehouse.report.display.figures import TIMES, Row, ar_name, figure, rate, technique_label, technique_sign
from warehouse.report.display.markup import FEWEST_BARS, Child, Markup, plot, tag
from warehouse.report.display.view import grouped

LABELS = 108.0
"""Room for names left of bars, at the least."""

BAR, GAP = 13.0, 5.0
"""Height of a bar and the space below it."""


class Bar(NamedTuple):
    """What a bar is of, how far it reaches, its CSS classes, its figure as text, and the ends of its interval."""

    name: str
    value: float
    kind: str
    label: str
    low: float | None = None
    high: float | None = None


def cell_bars(
    rows: Sequence[Row], column: str, shown: Callable[[float], str], title: str, said: str, *, right: float
) -> Markup:
    """A figure of several cells, with room for it `right` of the bars, and what is said of the whole drawing.

    Of a cell that isn't ok the bar is pale and the name has a mark.
    """
    usual = usual_precision(rows)
    bars = []
    for row in rows:
        low, high = row.get(f"{column}_lo"), row.get(f"{column}_hi")
        bars.append(Bar(bar_label(row, usual), row[column], fill(row), shown(row[column]), low, high))
    longest = max(bar.high or bar.value for bar in bars)
    scale = Scale(0, longest * 1.04, drawing.room_for_names([bar.name for bar in bars], LABELS, 10), WIDTH - right)
    bottom = len(bars) * (BAR + GAP)
    axis = axis_below(scale, bottom, 0, UNITS[column])
    return svg(title, said, bottom + 34, [axis, *_drawn_bars(scale, bars)], rows)


UNITS = {"tok_s": "tokens per second", "energy_j_per_token": "joules per token"}
"""What the axis below bars says."""


def _drawn_bars(scale: Scale, bars: Sequence[Bar]) -> list[Child]:
    drawn: list[Child] = []
    for number, bar in enumerate(bars):
        top, width = number * (BAR + GAP), scale.at(bar.value) - scale.start
        middle = top + BAR / 2
        drawn += [
            text(scale.start - 6, middle + 4, bar.name, "end"),
            tag("rect", x=scale.start, y=top, width=width, height=BAR, rx=2, class_=bar.kind),
            None if bar.low is None else line(scale.at(bar.low), middle, scale.at(bar.high or 0), middle, "whisker"),
            text(scale.at(bar.high or bar.value) + 5, middle + 4, bar.label, "value"),
        ]
    return drawn


def rate_bars(rows: Sequence[Row]) -> Markup:
    """Tokens per second with intervals, under one condition."""
    usual = usual_precision(rows)
    said = "; ".join(f"{cell_name(row, usual)} {rate(row['tok_s'])}" for row in rows)
    return cell_bars(rows, "tok_s", rate, "Tokens per second", said, right=40)


def phase_bars(phases: Sequence[tuple[str, float, str]]) -> Markup:
    """What a bill was for: name, share (0 to 1) and label of every phase."""
    scale = Scale(0, max(max(share for _, share, _ in phases), 0.01), LABELS - 30, WIDTH - 96)
    colours = {"measure": "c1", "lost": "c2"}  # worth its money, and thrown away; other phases are grey
    bars = [Bar(name, share, f"fill {colours.get(name, 'c0')}", label) for name, share, label in phases]
    said = "; ".join(f"{name} {label}" for name, _, label in phases)
    return svg("The bill by phase", said, len(phases) * (BAR + GAP), _drawn_bars(scale, bars))


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


def score_dots(rows: Sequence[Row]) -> Markup:
    """Scores with 95 % intervals over items, each of one arm; differences are in the table of pairs."""
    usual = usual_precision(rows)
    scale = Scale(0, 1, drawing.room_for_names([bar_label(row, usual) for row in rows], LABELS, 10), WIDTH - 12)
    drawn: list[Child] = []
    for number, row in enumerate(rows):
        middle = 12 + number * 20.0
        drawn += [
            text(scale.start - 6, middle + 4, bar_label(row, usual), "end"),
            line(scale.at(row["score_lo"]), middle, scale.at(row["score_hi"]), middle, "whisker"),
            tag("circle", cx=scale.at(row["score"]), cy=middle, r=4.5, class_=fill(row)),
        ]
    top = 12 + len(rows) * 20.0 - 6
    said = "; ".join(f"{technique_label(row)} {figure(row['score'], 3)} of {row['n']}" for row in rows)
    axis = axis_below(scale, top, 0, "accuracy and 95 % interval")
    return svg("Accuracy", said, top + 32, [axis, *drawn], rows)


GROUP_LABELS = 92.0
THIN_BAR, THIN_GAP, BETWEEN = 9.0, 2.0, 7.0
"""Height of a bar in a group, the space below it, and below a group."""


def speedup_plots(
    rows: Sequence[Row],
    what: str,
    name_of: Callable[[Row], str],
    names: Sequence[str],
    loads: Sequence[int | None],
    note: str,
) -> list[Markup]:
    """Speedups of one bench's rows by `what`, whose names are in their order, at each of some requests in flight.

    None of these is the load of averages over all of them.
    """
    made = []
    for number in loads:
        here = [row for row in rows if row["concurrency"] == number]
        groups = [(name, found) for name in names if (found := [row for row in here if name_of(row) == name])]
        if len(here) >= FEWEST_BARS:
            load = "mean of all loads" if number is None else f"{number} in flight"
            made.append(plot(f"Speedup by {what}, {load}", note, _grouped_bars(groups, what)))
    return made


def _grouped_bars(groups: Sequence[tuple[str, Sequence[Row]]], what: str) -> Markup:
    """Speedups over AR, a bar per cell, with the line at 1."""
    rows = [row for _, each in groups for row in each]
    longest = max(max(row["speedup_hi"] or row["speedup"] for row in rows), 1.0)
    scale = Scale(0, longest * 1.02, GROUP_LABELS, WIDTH - 34)
    drawn: list[Child] = []
    top, opacity = 0.0, _opacities(rows)
    for group, cells in groups:
        drawn.append(text(GROUP_LABELS - 6, top + len(cells) * (THIN_BAR + THIN_GAP) / 2 + 3, group, "end"))
        for row in cells:
            middle, low, high = top + THIN_BAR / 2, row["speedup_lo"], row["speedup_hi"]
            drawn += [
                _block(row, top, scale.at(row["speedup"]) - GROUP_LABELS, opacity),
                None if low is None else line(scale.at(low), middle, scale.at(high), middle, "whisker"),
                text(scale.at(high or row["speedup"]) + 4, middle + 3.5, figure(row["speedup"]), "value"),
            ]
            top += THIN_BAR + THIN_GAP
        top += BETWEEN
    one = line(scale.at(1), 0, scale.at(1), top - BETWEEN, "one")
    axis, height = axis_below(scale, top, 0, f"{TIMES} AR"), top + 36
    for name, row in {technique_sign(row): row for row in rows}.items():
        drawn += [_block(row, height, THIN_BAR, opacity), text(GROUP_LABELS + 14, height + 8.5, name, "name")]
        height += 14
    said = []
    for group, cells in groups:
        gains = (f"{technique_label(row)} {figure(row['speedup'])} {TIMES} {ar_name(row)}" for row in cells)
        said.append(f"{group}: {', '.join(gains)}")
    return svg(f"Speedup by {what}", "; ".join(said), height, [axis, one, *drawn], rows)


def _opacities(rows: Sequence[Row]) -> dict[str, float]:
    """By a cell's name: bars of one technique have its colour, of the largest K all of it, of the smallest 0.4."""
    by_k = sorted({technique_sign(row): row for row in rows}.items(), key=lambda each: (each[1]["k"] or 0, each[0]))
    found = {}
    for cells in grouped([row for _, row in by_k], lambda row: colour(row["technique"])).values():
        for place, row in enumerate(cells):
            found[technique_sign(row)] = 1 - (1 - 0.4) * (len(cells) - 1 - place) / max(1, len(cells) - 1)
    return found


def _block(row: Row, top: float, width: float, opacity: Mapping[str, float]) -> Markup:
    kind, solid = f"fill {colour(row['technique'])}", opacity[technique_sign(row)]
    return tag("rect", x=GROUP_LABELS, y=top, width=width, height=THIN_BAR, rx=2, class_=kind, fill_opacity=solid)
