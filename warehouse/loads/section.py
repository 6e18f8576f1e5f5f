"""Sections about prompt suites under load: against concurrency, and by category."""

from __future__ import annotations

from collections.abc import Sequence

from configs.steps.load import OPEN, category_of
from warehouse.display.curves import points_of
from warehouse.display.figures import Row, figure, rate, span
from warehouse.display.groups import benches_of, cells_of
from warehouse.display.markup import Markup
from warehouse.display.section import FEWEST_BARS, plot, section
from warehouse.display.speed_sections import claim_cell, plots_of
from warehouse.display.tables import Heading, fair_share, more, naming, table, verdict_mark
from warehouse.display.view import LOAD_STEP, View, bench
from warehouse.loads.columns import (
    Value,
    goodput_columns,
    in_flight,
    in_order,
    latency,
    limits_note,
    note_of,
    shown,
    value_of,
)
from warehouse.loads.plots import IN_FLIGHT, against_load, category_bars

LEAD = (
    "Every prompt of a suite, streamed, so many at a time, each answer followed by the next request at once; answers "
    "end by themselves or at the cap. Tokens per second are of the time in which all slots are busy. Latencies leave "
    "out the requests that were sent together at the start. ITL is of tokens: those of a chunk share the gap before "
    "it. A percentile that so few prompts can't bound (95 %) is a dash: it takes 6 for the median, 36 for p90, 72 for "
    "p95, 368 for p99."
)

CATEGORY_LEAD = (
    "The same requests by category. At one request at a time a category's rate is tokens over wall clock. With several "
    "in flight all categories are mixed, and its rate is what it would be if it filled the slots at the pace that its "
    "requests had beside the others. Acceptance is what the engine says of each request's drafts; where it says "
    "nothing, it is a dash with several in flight. Intervals are over starts and over the prompts of the category."
)

LATENCIES_SHOWN = (
    ("ttft", 50), ("ttft", 95), ("ttft", 99), ("tpot", 50), ("tpot", 95), ("itl", 50), ("itl", 95), ("chunk", 50),
    ("e2e", 50), ("e2e", 95),
)  # fmt: skip
"""Latency and percentile."""


def load_section(view: View) -> Markup | None:
    """Rate, first token and time per token against concurrency; the table has all of it."""
    rows = in_order([row for row in _rated(view) if category_of(row["condition"]) is None], in_flight)
    if not rows:
        return None
    drawings = [drawing for each in benches_of(rows) for drawing in _curves(view, each)]
    columns = [
        *naming(view.rows),
        Heading("in flight", lambda row: figure(row["concurrency"], 0)),
        Heading("tok/s", lambda row: rate(row["tok_s"])),
        Heading("95 % interval", lambda row: span(row["tok_s_lo"], row["tok_s_hi"], 0)),
        *_speedup_columns(view),
        *(latency(view, name, percent) for name, percent in LATENCIES_SHOWN),
        Heading("requests/s", shown(view, "requests_s", 2)),
        *goodput_columns(view, rows),
        Heading("acceptance length", lambda row: figure(row["acceptance_length"])),
        Heading("requests", shown(view, "requests", 0)),
        Heading("cut off", shown(view, "cut_off", 0)),
        Heading("verdict", verdict_mark, ""),
    ]
    content = table("Load against concurrency", columns, rows)
    return section("load", "Load", LEAD, plots_of(drawings), limits_note(view, rows), content)


def category_section(view: View) -> Markup | None:
    """Speedups by category at the lightest and at the heaviest load; the table has all loads."""
    rows = in_order([row for row in _rated(view) if category_of(row["condition"]) is not None], in_flight)
    if not rows:
        return None
    drawings = [drawing for each in benches_of(rows) for drawing in _bars(each)]
    columns = [
        *naming(view.rows),
        Heading("category", lambda row: category_of(row["condition"]), ""),
        Heading("in flight", lambda row: figure(row["concurrency"], 0)),
        Heading("tok/s", lambda row: rate(row["tok_s"])),
        *_speedup_columns(view),
        Heading("acceptance length", lambda row: figure(row["acceptance_length"])),
        *(latency(view, name, percent) for name, percent in (("ttft", 50), ("tpot", 50))),
        Heading("answer, tokens", shown(view, "answer_tokens", 0)),
        Heading("requests", shown(view, "requests", 0)),
        Heading("verdict", verdict_mark, ""),
    ]
    content = table("Load by category", columns, fair_share(rows, bench))
    left_out = more(rows, "results_consolidated")
    return section("load-categories", "Load by category", CATEGORY_LEAD, plots_of(drawings), content, left_out)


def _rated(view: View) -> list[Row]:
    """Closed loops: a schedule has its own section."""
    return [row for row in view.of(step=LOAD_STEP) if row["tok_s"] is not None and row["mode"] != OPEN]


def _curves(view: View, rows: Sequence[Row]) -> list[Markup]:
    """Plots of one bench; rejected rows are in the table only."""
    figures: tuple[tuple[str, str, Value], ...] = (
        ("Throughput against load", "tokens per second", lambda row: row["tok_s"]),
        ("First token against load", "TTFT, median, ms", value_of(view, "ttft_p50_ms")),
        ("Time per token against load", "TPOT, median, ms", value_of(view, "tpot_p50_ms")),
    )
    made = []
    for title, unit, value in figures:
        lines = [points for each in cells_of(rows) if (points := points_of(each, in_flight, value))]
        if lines:
            made.append(plot(title, note_of(rows), against_load(title, unit, lines, IN_FLIGHT)))
    return made


def _bars(rows: Sequence[Row]) -> list[Markup]:
    known = [row for row in rows if row["speedup"] is not None and row["verdict"] == "ok"]
    loads = sorted({row["concurrency"] for row in known})
    made = []
    for number in dict.fromkeys([*loads[:1], *loads[-1:]]):
        here = [row for row in known if row["concurrency"] == number]
        names = sorted({category_of(row["condition"]) or "" for row in here})
        categories = [(name, [row for row in here if category_of(row["condition"]) == name]) for name in names]
        if len(here) >= FEWEST_BARS:
            made.append(plot(f"Speedup by category, {number} in flight", note_of(here), category_bars(categories)))
    return made


def _speedup_columns(view: View) -> list[Heading]:
    return [
        Heading("speedup", lambda row: figure(row["speedup"])),
        Heading("95 % interval", lambda row: span(row["speedup_lo"], row["speedup_hi"])),
        Heading("claim", lambda row: claim_cell(view, row), ""),
    ]
