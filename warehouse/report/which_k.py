"""The section about K: rate or speedup over K as measured, beside theory of its acceptance, and recommendations."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from operator import itemgetter
from typing import NamedTuple

from configs.steps.load import category_of
from warehouse.dataset.curves import AR_K
from warehouse.dataset.statistics.speculation import MOST_HIDDEN
from warehouse.report.display.curves import BOTTOM, HEIGHT, LEFT, Dot, Line, drawn_lines
from warehouse.report.display.drawing import (
    LEGEND,
    WIDTH,
    Scale,
    axis_below,
    axis_left,
    colour,
    line,
    polyline,
    room_for_names,
    svg,
    text,
)
from warehouse.report.display.figures import NOTHING, TIMES, Row, figure, plural, rate, signed, span, technique_name
from warehouse.report.display.markup import Child, Markup, join, plot, plots_of, section, several, tag
from warehouse.report.display.tables import Heading, percent, table, verdict_mark
from warehouse.report.display.view import LOAD_STEP, View, curve_of, grouped, load_name, measured_in, note_of


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
    labels = ["AR" if tick == AR_K else str(tick) for tick in ticks]
    drawn: list[Child] = [
        axis_left(up, LEFT, WIDTH - 4),
        axis_below(across, BOTTOM, None, "tokens drafted per step (K)", [*map(float, ticks)], labels),
        text(LEFT + 4, 12, measure.unit, "axis"),
        None if measure.level is None else line(LEFT, up.at(measure.level), WIDTH - 4, up.at(measure.level), "one"),
    ]
    drawn += drawn_lines([_line(curve, measure, across, up) for curve in curves], BOTTOM, 4.0)
    legend, height = _legend(rows)
    told = []
    for row in rows:
        name, expected = "AR" if row["k"] == AR_K else technique_name(row), measure.of(row, "_expected")
        theory = "" if expected is None else f" (theory {measure.said(expected)})"
        told.append(f"{name} {measure.said(row[measure.column])}{theory}")
    return svg(f"{measure.title} against K", "; ".join(told), height, [*drawn, *legend])


def _theory(curve: Sequence[Row], measure: Measure, across: Scale, up: Scale) -> Child:
    """A dashed line through what theory expects, from AR's own figure on."""
    known = [(row["k"], measure.of(row, "" if row["k"] == AR_K else "_expected")) for row in curve]
    at = [(across.at(k), up.at(value)) for k, value in known if value is not None]
    if len(at) < 2 or all(measure.of(row, "_expected") is None for row in curve):
        return None
    return polyline(at, "line theory")


def _line(curve: Sequence[Row], measure: Measure, across: Scale, up: Scale) -> Line:
    """Measured points, AR's in its own colour, pale where a row isn't ok; below them what theory expects."""
    kind, dots = colour(curve[-1]["technique"]), []
    for row in curve:
        own = colour("ar") if row["k"] == AR_K else kind
        pale = "" if row["verdict"] == "ok" else " flagged"
        low, high = (None if (end := measure.of(row, which)) is None else up.at(end) for which in ("_lo", "_hi"))
        at = across.at(row["k"]), up.at(row[measure.column])
        dots.append(Dot(*at, f"fill {own}{pale}", low, high, is_ringed=row["is_recommended"]))
    through = f"line {kind}" if len(dots) > 1 else None
    return Line(curve[-1]["technique"], dots, through, _theory(curve, measure, across, up))


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


LEAD = (
    "How many tokens to draft, for each condition by itself: the smallest K within noise of the fastest, with AR as a "
    "draft of none. Noise is the 95 % interval of the ratio of two rates, by engine starts of one machine. There is no "
    "recommendation where a K that was planned is missing, not ok, short of a start or not compared with AR's outputs "
    "though that was planned, where no start was repeated, or where noise may "
    f"hide more than {100 * MOST_HIDDEN:.0f} %; and none is carried over to a load or category that wasn't measured."
)

THEORY = (
    "Theory: a step that drafts K tokens commits 1 + the sum of acceptance by position, and takes t(K) = t(0) + K "
    f"{TIMES} t(draft), a line fitted to the steps that were measured, in units of AR's on the same machine (Leviathan "
    "et al. 2023, theorem 3.8, with its cost coefficient c estimated instead of assumed). A drafted token's cost has "
    "its verification in it. The residual is what the line misses; with few K it follows them closely. Share of theory "
    "is the speedup over the tokens per step: what is left where drafting isn't free. It holds where K tokens are "
    "drafted at every step, and is left out elsewhere (n-gram, suffix, dynamic K)."
)

SINGLE = "of a single K so far: in recommendations.parquet only."

MOST_PLOTS = 24
"""Most curves drawn on a page; the tables have all of them."""


def which_k_section(view: View) -> Markup | None:
    """Curves of the conditions that aren't single categories, and both tables of all; one point is no curve yet."""
    lengths = Counter(curve_of(row) for row in view.k_curves if row["tok_s"] is not None)
    recommended = [row for row in view.recommendations if lengths[curve_of(row)] > 1]
    chosen = {(curve_of(row), row["k"]) for row in recommended}
    shown = [row for row in view.k_curves if lengths[curve_of(row)] > 1]
    points = [{**row, **_beside(view, row), "is_recommended": (curve_of(row), row["k"]) in chosen} for row in shown]
    if not points:
        return None
    single = len(view.recommendations) - len(recommended)
    drawings = [drawing for rows in _plots(points)[:MOST_PLOTS] if (drawing := _drawn(rows)) is not None]
    drafting, technique = [row for row in points if row["k"] != AR_K], itemgetter("model", "technique")
    return section(
        "which-k",
        "Which K",
        LEAD,
        plots_of(drawings),
        table("Which K", RECOMMENDED, recommended, "recommendations", share=technique) if recommended else None,
        tag("p", f"{plural(single, 'curve')} {SINGLE}") if single else None,
        tag("p", THEORY, class_="lead"),
        table("Theory beside measurement", BESIDE, drafting, "k_curves", share=technique),
    )


def _beside(view: View, point: Row) -> Row:
    """Of the row that a point is: its machine, and the interval of its speedup; AR's over itself is 1."""
    of_cell = view.of(run_id=measured_in(point), cell_key=point["cell_key"])
    measured_under = itemgetter("step", "condition", "mode")
    row = next((each for each in of_cell if measured_under(each) == measured_under(point)), {})
    speedup = 1.0 if point["k"] == AR_K else point["speedup"]
    return {"speedup": speedup, **{name: row.get(name) for name in ("machine", "speedup_lo", "speedup_hi")}}


def _named(row: Row) -> Child:
    small = [row["model"], row["precision"], *([row["made_up"]] if row["made_up"] else [])]
    return join([row["technique"], tag("small", " · ".join(small))])


def _recommended_k(row: Row) -> str:
    if row["k"] is None:
        return "none"
    return "AR" if row["k"] == AR_K else f"K={row['k']}"


def _why(row: Row) -> Child:
    left_out = f"Left out: {'; '.join(row['excluded'])}." if row["excluded"] else None
    return join([row["wording"], tag("small", left_out) if left_out else None])


RECOMMENDED = (
    Heading("technique", _named, ""),
    Heading("condition", load_name, ""),
    Heading("K", _recommended_k, ""),
    Heading("why", _why, "wrap"),
    Heading("a step of the target, ms", lambda row: figure(row["target_step_ms"])),
    Heading("a drafted token, ms", lambda row: figure(row["draft_token_ms"], 3)),
    Heading("of the step", lambda row: percent(row["draft_cost"])),
    Heading("95 % interval", lambda row: _shares(row["draft_cost_lo"], row["draft_cost_hi"])),
)

BESIDE = (
    Heading("technique", lambda row: join([f"{row['technique']} K={row['k']}", _small(row)]), ""),
    Heading("condition", load_name, ""),
    Heading("tok/s", lambda row: rate(row["tok_s"])),
    Heading("of the fastest", lambda row: figure(row["of_best"])),
    Heading("95 % interval", lambda row: span(row["of_best_lo"], row["of_best_hi"])),
    Heading("tokens per step", lambda row: figure(row["tokens_per_step"])),
    Heading("by position", lambda row: figure(row["tokens_expected"])),
    Heading("at one rate", lambda row: figure(row["tokens_geometric"])),
    Heading("step, ms", lambda row: figure(row["step_ms"])),
    Heading("fitted, ms", lambda row: figure(row["step_ms_fitted"])),
    Heading("speedup", lambda row: figure(row["speedup"])),
    Heading("expected", lambda row: figure(row["speedup_expected"])),
    Heading("residual", lambda row: NOTHING if row["residual"] is None else f"{signed(100 * row['residual'], 1)} %"),
    Heading("share of theory", lambda row: percent(row["theory_share"], 0)),
    Heading("verdict", verdict_mark, ""),
)


def _small(row: Row) -> Markup:
    words = [row["model"], row["precision"]]
    if row["tokens_per_step"] is not None and row["tokens_expected"] is None:
        words.append("nothing accepted" if row["tokens_per_step"] <= 1 else "not K drafts at every step")
    return tag("small", " · ".join(words))


def _shares(low: float | None, high: float | None) -> str:
    return NOTHING if low is None or high is None else f"{signed(100 * low, 0)} to {signed(100 * high, 0)} %"


def _plots(points: Sequence[Row]) -> list[list[list[Row]]]:
    """Curves that share a plot: those of one model, machine and condition; a category alone is only in the tables."""
    whole = [row for row in points if row["step"] != LOAD_STEP or category_of(row["condition"]) is None]
    known = [row for row in whole if row["tok_s"] is not None and row["verdict"] != "rejected"]
    place = itemgetter("run_id", "model", "precision", "engine", "gpu", "condition", "mode")
    drawable = [_drawable(grouped(rows, curve_of).values()) for rows in grouped(known, place).values()]
    return [curves for curves in drawable if curves]


def _drawn(curves: Sequence[Sequence[Row]]) -> Markup | None:
    """Rates of one machine in one run; of several what each gains over its own AR. None: nothing is known of that."""
    first, note = curves[0][0], note_of(curves[0])
    places = several([{"run_id": measured_in(row), "machine": row["machine"]} for curve in curves for row in curve])
    measure, kind = RATE, "Speed"
    if places:
        measure, kind = GAIN, "Speedup"
        curves = _drawable([[row for row in curve if row["speedup"] is not None] for curve in curves])
        note += f" Of {places}: each point over AR on its own machine."
    if not curves:
        return None
    note += f" {plural(len(curves), 'technique')}." if len(curves) > 1 else ""
    return plot(f"{kind} over K, {load_name(first)}", note, k_plot(curves, measure))


def _drawable(curves: Iterable[list[Row]]) -> list[list[Row]]:
    """Without those that have no point but AR's."""
    return [curve for curve in curves if curve and curve[-1]["k"] != AR_K]
