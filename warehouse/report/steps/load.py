"""Sections about prompt suites under load: against concurrency, on a schedule, and by category."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from operator import itemgetter
from statistics import geometric_mean
from typing import Any

from configs.steps.load import OPEN, category_of
from warehouse.report.display.claims import speedup_columns
from warehouse.report.display.curves import IN_FLIGHT, PER_SECOND, against_load, lines_of
from warehouse.report.display.figures import NOTHING, Row, figure, rate, span
from warehouse.report.display.markup import Child, Markup, Section, plot, plots_of, section, tag
from warehouse.report.display.plots import speedup_plots
from warehouse.report.display.tables import Heading, naming, percent, table, verdict_mark
from warehouse.report.display.view import LOAD_STEP, View, ar_first, bench, benches_of, cell_of, grouped, note_of

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

MEAN_LEAD = (
    "Each category's speedup over all loads: the geometric mean, in which every load counts alike. The loads share "
    "their engine starts, so the interval is the mean of theirs. It is a summary and no claim of its own."
)

LATENCIES_SHOWN = (
    ("ttft", 50), ("ttft", 95), ("ttft", 99), ("tpot", 50), ("tpot", 95), ("itl", 50), ("itl", 95), ("chunk", 50),
    ("e2e", 50), ("e2e", 95),
)  # fmt: skip
"""Latency and percentile."""

RATE_LEAD = (
    "The same prompts, sent at moments that no answer changes, so many a second, as users come. Latencies run from the "
    "moment at which a request was due, also where it was sent late. Tokens per second would be those of the schedule, "
    "so there are none, and no speedup; what a technique gains is the rate at which it still keeps its limits. Where "
    "more and more requests are in flight the engine can't follow: its latencies are true, and grow with the schedule."
)


ALL, FOLLOWED = "Dashed: all that is offered.", "Where the engine follows."
"""What the captions of plots say."""

in_flight = itemgetter("concurrency")
"""The load of a closed loop."""

Value = Callable[[Row], float | None]

Figure = tuple[str, str, str, Value]
"""Title and unit of a plot, what its caption adds, and what it shows."""

TITLES = {"ttft": "TTFT", "tpot": "TPOT", "itl": "ITL", "chunk": "chunk gap", "e2e": "end to end"}
"""Of latencies, by their names in the dataset."""


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
        *speedup_columns(view),
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
    """Speedups by category at the lightest and at the heaviest load, and over all; the table has each load."""
    rows = in_order([row for row in _rated(view) if category_of(row["condition"]) is not None], in_flight)
    if not rows:
        return None
    benches = [(each, over_loads(each)) for each in benches_of(rows)]
    drawings = [drawing for each, means in benches for drawing in _bars(each, means)]
    columns = [
        *naming(view.rows),
        Heading("category", _category, ""),
        Heading("in flight", lambda row: figure(row["concurrency"], 0)),
        Heading("tok/s", lambda row: rate(row["tok_s"])),
        *speedup_columns(view),
        Heading("acceptance length", lambda row: figure(row["acceptance_length"])),
        *(latency(view, name, percent) for name, percent in (("ttft", 50), ("tpot", 50))),
        Heading("answer, tokens", shown(view, "answer_tokens", 0)),
        Heading("requests", shown(view, "requests", 0)),
        Heading("verdict", verdict_mark, ""),
    ]
    content = table("Load by category", columns, rows, "results_consolidated", share=bench)
    over_all = _mean_table(view, [row for _, means in benches for row in means])
    return section("load-categories", "Load by category", CATEGORY_LEAD, plots_of(drawings), *over_all, content)


def _rated(view: View) -> list[Row]:
    """Closed loops: a schedule has its own section."""
    return [row for row in view.of(step=LOAD_STEP) if row["tok_s"] is not None and row["mode"] != OPEN]


def _curves(view: View, rows: Sequence[Row]) -> list[Markup]:
    figures = (
        ("Throughput against load", "tokens per second", "", lambda row: row["tok_s"]),
        ("First token against load", "TTFT, median, ms", "", value_of(view, "ttft_p50_ms")),
        ("Time per token against load", "TPOT, median, ms", "", value_of(view, "tpot_p50_ms")),
    )
    return _plots(rows, figures, in_flight, IN_FLIGHT)


def _plots(rows: Sequence[Row], figures: Iterable[Figure], load: Value, loads: str) -> list[Markup]:
    """Plots of one bench against its loads; rejected rows are in the table only."""
    made = []
    for title, unit, note, value in figures:
        if lines := lines_of(rows, load, value):
            drawing = against_load(title, unit, lines, loads, has_bound=note == ALL)
            made.append(plot(title, f"{note_of(rows)} {note}".rstrip(), drawing))
    return made


def over_loads(rows: Sequence[Row]) -> list[Row]:
    """Rows of one bench's categories over all of its loads: the geometric mean of a cell's speedups, and `loads`.

    Only of cells that have a speedup at each load, of which there are two at least: others are means of something else.
    The ends of the interval are means of the loads' in logs. They would be exact if the loads' errors were the same,
    and are too wide where they are not: the error of a mean is never above the mean of the errors.
    """
    known = _with_speedup(rows)
    loads = {row["concurrency"] for row in known}
    means: list[Row] = []
    for alike in grouped(known, lambda row: (*cell_of(row), _category(row))).values():
        if len(loads) > 1 and {row["concurrency"] for row in alike} == loads:
            mean = {name: _geometric_mean([row[name] for row in alike]) for name in SPEEDUP}
            means.append({**alike[0], **mean, "concurrency": None, "loads": len(alike)})
    return means


SPEEDUP = ("speedup", "speedup_lo", "speedup_hi")


def _geometric_mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None and value > 0]
    return geometric_mean(known) if len(known) == len(values) else None


def _with_speedup(rows: Sequence[Row]) -> list[Row]:
    return [row for row in rows if row["speedup"] is not None and row["verdict"] == "ok"]


def _mean_table(view: View, means: Sequence[Row]) -> list[Markup]:
    """What it says and its table; nothing where no cell has several loads."""
    if not means:
        return []
    columns = [
        *naming(view.rows),
        Heading("category", _category, ""),
        Heading("speedup, mean of loads", lambda row: figure(row["speedup"])),
        Heading("95 % interval", lambda row: span(row["speedup_lo"], row["speedup_hi"])),
        Heading("loads", lambda row: figure(row["loads"], 0)),
    ]
    return [tag("p", MEAN_LEAD, class_="lead"), table("Speedup by category, mean of all loads", columns, means)]


def _bars(rows: Sequence[Row], means: Sequence[Row]) -> list[Markup]:
    """At the lightest and at the heaviest load, and over all."""
    known = _with_speedup(rows)
    loads = sorted({row["concurrency"] for row in known})
    ends = [*dict.fromkeys([*loads[:1], *loads[-1:]]), *([None] if means else [])]
    names = sorted({_category(row) for row in known})
    return speedup_plots([*known, *means], "category", _category, names, ends, note_of(rows)) if known else []


def _category(row: Row) -> str:
    return category_of(row["condition"]) or ""


def rate_section(view: View) -> Markup | None:
    """Answered and good requests, first token and end to end against the rate; the table has all of it."""
    offered = value_of(view, "offered_s")
    open_rows = [row for row in view.of(step=LOAD_STEP) if row["mode"] == OPEN and offered(row) is not None]
    rows = in_order([row for row in open_rows if category_of(row["condition"]) is None], offered)
    if not rows:
        return None
    drawings = [drawing for each in benches_of(rows) for drawing in _rate_curves(view, each)]
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
    return section("load-rates", "Load on a schedule", RATE_LEAD, plots_of(drawings), limits_note(view, rows), content)


def _follows(view: View, row: Row) -> Child:
    overloaded = _beside(view, "overloaded", row)
    if overloaded is None:
        return NOTHING
    return tag("span", "no: overloaded", class_="suspect") if overloaded else "yes"


def _rate_curves(view: View, rows: Sequence[Row]) -> list[Markup]:
    figures = (
        ("Answered against offered", "requests per second", ALL, value_of(view, "requests_s")),
        ("Goodput against offered", "requests per second", ALL, value_of(view, "goodput_s")),
        ("First token against rate", "TTFT, median, ms", FOLLOWED, partial(_followed, view, "ttft_p50_ms")),
        ("End to end against rate", "median, ms", FOLLOWED, partial(_followed, view, "e2e_p50_ms")),
    )
    return _plots(rows, figures, partial(_due, view), PER_SECOND)


def _due(view: View, row: Row) -> float | None:
    """What a schedule offered in truth, to the three digits of an axis; older rows only know what was asked for."""
    rate = _beside(view, "arrived_s", row) or _beside(view, "offered_s", row)
    return None if rate is None else float(f"{rate:.3g}")


def _followed(view: View, column: str, row: Row) -> float | None:
    """A latency where the engine is known to follow; of a queue that grows it would be the schedule's length."""
    return _beside(view, column, row) if _beside(view, "overloaded", row) is False else None


def _beside(view: View, column: str, row: Row) -> Any:
    """A column of the row of `load` that belongs to a row; None where there is none."""
    beside = view.latencies(row)
    return None if beside is None else beside[column]


def value_of(view: View, column: str) -> Value:
    """The same of every row."""
    return partial(_beside, view, column)


def shown(view: View, column: str, digits: int) -> Callable[[Row], str]:
    """The same as text."""
    return lambda row: figure(_beside(view, column, row), digits)


def latency(view: View, name: str, percent: int) -> Heading:
    """A percentile of a latency."""
    return Heading(f"{TITLES[name]} p{percent}, ms", shown(view, f"{name}_p{percent}_ms", 1))


def goodput_columns(view: View, rows: Sequence[Row]) -> list[Heading]:
    """Goodput, where any limit was stated; `limits_note` says which."""
    if not _stated(view, rows):
        return []
    return [
        Heading("goodput/s", shown(view, "goodput_s", 2)),
        Heading("good", lambda row: percent(value_of(view, "goodput_share")(row), 0)),
    ]


def limits_note(view: View, rows: Sequence[Row]) -> Markup | None:
    """What a request must keep to be good; None: no limit was stated."""
    said = _stated(view, rows)
    return tag("p", f"Good are requests that keep {' or '.join(said)}.", class_="lead") if said else None


def _stated(view: View, rows: Sequence[Row]) -> list[str]:
    known = (("ttft_limit_ms", "TTFT {:g} ms"), ("tpot_limit_ms", "TPOT {:g} ms"), ("e2e_limit_s", "end to end {:g} s"))
    stated = set()
    for row in rows:
        limits = [(form, _beside(view, column, row)) for column, form in known]
        stated.add(", ".join(form.format(limit) for form, limit in limits if limit is not None))
    return sorted(stated - {""})


def in_order(rows: Sequence[Row], load: Value) -> list[Row]:
    """AR first, then by name; within a cell by category and load."""

    def place(row: Row) -> tuple[object, ...]:
        return *ar_first(row), row["precision"], row["run_id"], _category(row), load(row) or 0.0

    return sorted(rows, key=place)


SECTIONS = (
    Section("load", "Load", load_section, 32),
    Section("load-rates", "Load on a schedule", rate_section, 33),
    Section("load-categories", "Load by category", category_section, 34),
)
