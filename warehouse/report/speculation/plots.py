"""Plot of a curve over K: rate or speedup as measured, and as theory expects of the acceptance that was measured."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from warehouse.dataset.speculation.curves import AR_K
from warehouse.report.display.drawing import LEGEND, WIDTH, axis_below, axis_left, colour, line, svg, text
from warehouse.report.display.figures import TIMES, Row, figure, rate, technique_name
from warehouse.report.display.markup import Child, Markup, tag
from warehouse.report.display.plots import room_for_names
from warehouse.report.display.scale import Scale, apart

LEFT, BOTTOM, HEIGHT = 40.0, 226.0, 266.0


class Measure(NamedTuple):
    """What of a point is drawn; its ends and what theory expects of it are columns of the same name and an ending."""

    column: str
    title: str
    unit: str
    said: Callable[[float], str]
    level: float | None = None
    """Where AR is, whatever K."""

    def of(self, row: Row, ending: str = "") -> float | None:
        """The point's figure, or another one of it."""
        value: float | None = row[self.column + ending]
        return value


RATE = Measure("tok_s", "Tokens per second", "tokens per second", rate)
GAIN = Measure("speedup", "Speedup", f"{TIMES} AR", figure, level=1.0)
"""Of points of several machines, whose rates are not to be joined by a line: each over AR on its own."""


def k_plot(curves: Sequence[Sequence[Row]], measure: Measure = RATE) -> Markup:
    """Curves under one condition, K in proportion; rows of `k_curves` that have the figure, AR's point first.

    A ring is the recommended K. A row that isn't ok is pale.
    """
    rows = [row for curve in curves for row in curve]
    most_k = max(row["k"] for row in rows)
    tops = [measure.of(row, ending) or 0.0 for row in rows for ending in ("", "_hi", "_expected")]
    highest = max([*tops, measure.level or 0.0])
    names = room_for_names([curve[-1]["technique"] for curve in curves])
    across, up = Scale(0, max(most_k, 1), LEFT + 8, WIDTH - names), Scale(0, highest * 1.06, BOTTOM, 20)
    ticks = sorted({row["k"] for row in rows})
    drawn: list[Child] = [
        axis_left(up, LEFT, WIDTH - 4),
        axis_below(across, BOTTOM, None, "tokens drafted per step (K)", list(map(float, ticks)), _labels(ticks)),
        text(LEFT + 4, 12, measure.unit, "axis"),
        None if measure.level is None else line(LEFT, up.at(measure.level), WIDTH - 4, up.at(measure.level), "one"),
    ]
    ends = apart([up.at(curve[-1][measure.column]) + 4 for curve in curves], 13, 16, BOTTOM - 2)
    for curve, end in zip(curves, ends, strict=True):
        drawn += [*_theory(curve, measure, across, up), *_measured(curve, measure, across, up)]
        x, y = across.at(curve[-1]["k"]), up.at(curve[-1][measure.column])
        drawn += [line(x + 4, y, x + 12, end - 4, "lead"), text(x + 14, end, curve[-1]["technique"], "name")]
    legend, height = _legend(rows)
    description = "; ".join(
        f"{_name(row)} {measure.said(row[measure.column])}{_expected(row, measure)}" for row in rows
    )
    return svg(f"{measure.title} against K", description, height, [*drawn, *legend])


def _labels(ticks: Sequence[int]) -> list[str]:
    return ["AR" if tick == AR_K else str(tick) for tick in ticks]


def _name(row: Row) -> str:
    return "AR" if row["k"] == AR_K else technique_name(row)


def _expected(row: Row, measure: Measure) -> str:
    expected = measure.of(row, "_expected")
    return "" if expected is None else f" (theory {measure.said(expected)})"


def _theory(curve: Sequence[Row], measure: Measure, across: Scale, up: Scale) -> list[Child]:
    """A dashed line through what theory expects, from AR's own figure on."""
    known = [(row["k"], measure.of(row, "" if row["k"] == AR_K else "_expected")) for row in curve]
    at = [(across.at(k), up.at(value)) for k, value in known if value is not None]
    if len(at) < 2 or all(measure.of(row, "_expected") is None for row in curve):
        return []
    return [tag("polyline", points=" ".join(f"{x:.1f},{y:.1f}" for x, y in at), class_="line theory")]


def _measured(curve: Sequence[Row], measure: Measure, across: Scale, up: Scale) -> list[Child]:
    kind = colour(curve[-1]["technique"])
    at = [(across.at(row["k"]), up.at(row[measure.column])) for row in curve]
    drawn: list[Child] = []
    if len(at) > 1:
        drawn.append(tag("polyline", points=" ".join(f"{x:.1f},{y:.1f}" for x, y in at), class_=f"line {kind}"))
    for row, (x, y) in zip(curve, at, strict=True):
        low, high = measure.of(row, "_lo"), measure.of(row, "_hi")
        if low is not None and high is not None:
            drawn.append(line(x, up.at(low), x, up.at(high), "whisker"))
        own = colour("ar") if row["k"] == AR_K else kind
        pale = "" if row["verdict"] == "ok" else " flagged"
        drawn.append(tag("circle", cx=x, cy=y, r=4.0, class_=f"fill {own}{pale}"))
        if row["is_recommended"]:
            drawn.append(tag("circle", cx=x, cy=y, r=7.5, class_="ring"))
    return drawn


def _legend(rows: Sequence[Row]) -> tuple[list[Child], float]:
    """A line for each sign that is drawn."""
    said = []
    if any(row["tok_s_expected"] is not None for row in rows):
        said.append("dashed: theory, of its acceptance and the fitted step cost")
    if any(row["is_recommended"] for row in rows):
        said.append("ring: recommended")
    if any(row["verdict"] != "ok" for row in rows):
        said.append("pale: not ok, in no comparison")
    if any(row["made_up"] for row in rows):
        said += ["not really run:", *next(row["made_up"] for row in rows if row["made_up"]).split(", ")]
    drawn: list[Child] = [text(4, HEIGHT + LEGEND * at - 4, words, "axis") for at, words in enumerate(said, 1)]
    return drawn, HEIGHT + LEGEND * len(said)
