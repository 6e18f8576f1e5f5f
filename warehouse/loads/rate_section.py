"""The section about prompt suites on a schedule: what is answered, and how long users wait, against what is offered."""

from __future__ import annotations

from collections.abc import Sequence

from configs.steps.load import OPEN, category_of
from warehouse.display.curves import points_of
from warehouse.display.figures import NOTHING, Row, figure
from warehouse.display.groups import benches_of, cells_of
from warehouse.display.markup import Child, Markup, tag
from warehouse.display.section import plot, section
from warehouse.display.speed_sections import plots_of
from warehouse.display.tables import Heading, naming, table, verdict_mark
from warehouse.display.view import LOAD_STEP, View
from warehouse.loads.columns import (
    Value,
    goodput_columns,
    in_order,
    latency,
    limits_note,
    note_of,
    shown,
)
from warehouse.loads.columns import value_of as of_load
from warehouse.loads.plots import PER_SECOND, against_load
from warehouse.loads.section import LATENCIES_SHOWN

LEAD = (
    "The same prompts, sent at moments that no answer changes, so many a second, as users come. Latencies run from the "
    "moment at which a request was due, also where it was sent late. Tokens per second would be those of the schedule, "
    "so there are none, and no speedup; what a technique gains is the rate at which it still keeps its limits. Where "
    "more and more requests are in flight the engine can't follow: its latencies are true, and grow with the schedule."
)


ALL, FOLLOWED = "Dashed: all that is offered.", "Where the engine follows."
"""What the captions of plots say."""


def rate_section(view: View) -> Markup | None:
    """Answered and good requests, first token and end to end against the rate; the table has all of it."""
    offered = of_load(view, "offered_s")
    open_rows = [row for row in view.of(step=LOAD_STEP) if row["mode"] == OPEN and offered(row) is not None]
    rows = in_order([row for row in open_rows if category_of(row["condition"]) is None], offered)
    if not rows:
        return None
    drawings = [drawing for each in benches_of(rows) for drawing in _curves(view, each)]
    columns = [
        *naming(view.rows),
        Heading("offered/s", shown(view, "offered_s", 2)),
        Heading("due/s", shown(view, "arrived_s", 2)),
        Heading("answered/s", shown(view, "requests_s", 2)),
        Heading("follows", lambda row: _follows(view, row), ""),
        *goodput_columns(view, rows),
        Heading("in flight, mean", shown(view, "in_flight", 1)),
        *(latency(view, name, percent) for name, percent in LATENCIES_SHOWN),
        Heading("acceptance length", lambda row: figure(row["acceptance_length"])),
        Heading("sent late, p95, ms", shown(view, "sent_late_ms", 1)),
        Heading("requests", shown(view, "requests", 0)),
        Heading("cut off", shown(view, "cut_off", 0)),
        Heading("verdict", verdict_mark, ""),
    ]
    content = table("Load on a schedule", columns, rows)
    return section("load-rates", "Load on a schedule", LEAD, plots_of(drawings), limits_note(view, rows), content)


def _follows(view: View, row: Row) -> Child:
    beside = view.latencies(row)
    overloaded = None if beside is None else beside["overloaded"]
    if overloaded is None:
        return NOTHING
    return tag("span", "no: overloaded", class_="suspect") if overloaded else "yes"


def _curves(view: View, rows: Sequence[Row]) -> list[Markup]:
    """Plots of one bench; rejected rows are in the table only."""
    offered = _due(view)
    figures: tuple[tuple[str, str, str, Value], ...] = (
        ("Answered against offered", "requests per second", ALL, of_load(view, "requests_s")),
        ("Goodput against offered", "requests per second", ALL, of_load(view, "goodput_s")),
        ("First token against rate", "TTFT, median, ms", FOLLOWED, _followed(view, "ttft_p50_ms")),
        ("End to end against rate", "median, ms", FOLLOWED, _followed(view, "e2e_p50_ms")),
    )
    made = []
    for title, unit, note, value in figures:
        lines = [points for each in cells_of(rows) if (points := points_of(each, offered, value))]
        if lines:
            drawing = against_load(title, unit, lines, PER_SECOND, has_bound=note == ALL)
            made.append(plot(title, f"{note_of(rows)} {note}", drawing))
    return made


def _due(view: View) -> Value:
    """What a schedule offered in truth, to the three digits of an axis; of too few only what was asked for is known."""
    due, asked = of_load(view, "arrived_s"), of_load(view, "offered_s")

    def found(row: Row) -> float | None:
        rate = due(row) or asked(row)
        return None if rate is None else float(f"{rate:.3g}")

    return found


def _followed(view: View, column: str) -> Value:
    """A latency where the engine is known to follow; of a queue that grows it would be the schedule's length."""
    value = of_load(view, column)

    def found(row: Row) -> float | None:
        beside = view.latencies(row)
        return value(row) if beside is not None and beside["overloaded"] is False else None

    return found
