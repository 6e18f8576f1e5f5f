"""Energy per token as bars, under one condition."""

from __future__ import annotations

from collections.abc import Sequence

from warehouse.report.display.drawing import WIDTH, axis_below, fill, svg, text
from warehouse.report.display.figures import Row, significant, technique_label
from warehouse.report.display.markup import Child, Markup, tag
from warehouse.report.display.plots import BAR, GAP, bar_label, room_for_labels, usual_precision
from warehouse.report.display.scale import Scale


def energy_bars(rows: Sequence[Row]) -> Markup:
    """Joules per token of several cells; shorter is better."""
    usual = usual_precision(rows)
    longest = max(row["energy_j_per_token"] for row in rows)
    scale = Scale(0, longest * 1.04, room_for_labels([bar_label(row, usual) for row in rows]), WIDTH - 44)
    drawn: list[Child] = [axis_below(scale, len(rows) * (BAR + GAP), 0, "joules per token")]
    for number, row in enumerate(rows):
        top, joules = number * (BAR + GAP), row["energy_j_per_token"]
        width = scale.at(joules) - scale.start
        drawn += [
            text(scale.start - 6, top + BAR / 2 + 4, bar_label(row, usual), "end"),
            tag("rect", x=scale.start, y=top, width=width, height=BAR, rx=2, class_=fill(row)),
            text(scale.at(joules) + 5, top + BAR / 2 + 4, significant(joules), "value"),
        ]
    said = "; ".join(f"{technique_label(row)} {significant(row['energy_j_per_token'])} J" for row in rows)
    return svg("Energy per token", said, len(rows) * (BAR + GAP) + 34, drawn, rows)
