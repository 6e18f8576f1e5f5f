"""Plot of a curve over K: tokens per second as measured, and as theory expects of the acceptance that was measured."""

from __future__ import annotations

from collections.abc import Sequence

from warehouse.display.drawing import LEGEND, WIDTH, axis_below, axis_left, colour, line, svg, text
from warehouse.display.figures import Row, rate, technique_name
from warehouse.display.markup import Child, Markup, tag
from warehouse.display.plots import room_for_names
from warehouse.display.scale import Scale, apart
from warehouse.speculation.curves import AR_K

LEFT, BOTTOM, HEIGHT = 40.0, 226.0, 266.0


def k_plot(curves: Sequence[Sequence[Row]]) -> Markup:
    """Curves under one condition, K in proportion; rows of `k_curves`, AR's point first.

    A ring is the recommended K. A row that isn't ok is pale.
    """
    rows = [row for curve in curves for row in curve]
    most_k = max(row["k"] for row in rows)
    highest = max(max(row["tok_s_hi"] or row["tok_s"], row["tok_s_expected"] or 0.0) for row in rows)
    names = room_for_names([curve[-1]["technique"] for curve in curves])
    across, up = Scale(0, max(most_k, 1), LEFT + 8, WIDTH - names), Scale(0, highest * 1.06, BOTTOM, 20)
    ticks = sorted({row["k"] for row in rows})
    drawn: list[Child] = [
        axis_left(up, LEFT, WIDTH - 4),
        axis_below(across, BOTTOM, None, "tokens drafted per step (K)", list(map(float, ticks)), _labels(ticks)),
        text(LEFT + 4, 12, "tokens per second", "axis"),
    ]
    ends = apart([up.at(curve[-1]["tok_s"]) + 4 for curve in curves], 13, 16, BOTTOM - 2)
    for curve, end in zip(curves, ends, strict=True):
        drawn += [*_theory(curve, across, up), *_measured(curve, across, up)]
        x, y = across.at(curve[-1]["k"]), up.at(curve[-1]["tok_s"])
        drawn += [line(x + 4, y, x + 12, end - 4, "lead"), text(x + 14, end, curve[-1]["technique"], "name")]
    legend, height = _legend(rows)
    description = "; ".join(f"{_name(row)} {rate(row['tok_s'])}{_expected(row)}" for row in rows)
    return svg("Tokens per second against K", description, height, [*drawn, *legend])


def _labels(ticks: Sequence[int]) -> list[str]:
    return ["AR" if tick == AR_K else str(tick) for tick in ticks]


def _name(row: Row) -> str:
    return "AR" if row["k"] == AR_K else technique_name(row)


def _expected(row: Row) -> str:
    return "" if row["tok_s_expected"] is None else f" (theory {rate(row['tok_s_expected'])})"


def _theory(curve: Sequence[Row], across: Scale, up: Scale) -> list[Child]:
    """A dashed line through what theory expects, from AR's own rate on."""
    known = [(row["k"], row["tok_s"] if row["k"] == AR_K else row["tok_s_expected"]) for row in curve]
    at = [(across.at(k), up.at(value)) for k, value in known if value is not None]
    if len(at) < 2 or all(row["tok_s_expected"] is None for row in curve):
        return []
    return [tag("polyline", points=" ".join(f"{x:.1f},{y:.1f}" for x, y in at), class_="line theory")]


def _measured(curve: Sequence[Row], across: Scale, up: Scale) -> list[Child]:
    kind = colour(curve[-1]["technique"])
    at = [(across.at(row["k"]), up.at(row["tok_s"])) for row in curve]
    drawn: list[Child] = []
    if len(at) > 1:
        drawn.append(tag("polyline", points=" ".join(f"{x:.1f},{y:.1f}" for x, y in at), class_=f"line {kind}"))
    for row, (x, y) in zip(curve, at, strict=True):
        if row["tok_s_lo"] is not None:
            drawn.append(line(x, up.at(row["tok_s_lo"]), x, up.at(row["tok_s_hi"]), "whisker"))
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
