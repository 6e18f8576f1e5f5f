"""Sections about prompt suites under load: against concurrency, and by category."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from configs.steps.load import category_of
from warehouse.display.figures import Row, figure, rate, span, technique_sign
from warehouse.display.markup import Markup
from warehouse.display.rate_columns import share
from warehouse.display.section import plot, section
from warehouse.display.speed_sections import claim_cell, plots_of
from warehouse.display.tables import Heading, fair_share, more, naming, table, verdict_mark
from warehouse.display.view import LOAD_STEP, View, bench
from warehouse.loads.plots import against_concurrency, category_bars, points_of

LEAD = (
    "Every prompt of a suite, streamed, so many at a time, each answer followed by the next request at once; answers "
    "end by themselves or at the cap. Tokens per second are of the time in which all slots are busy. Latencies leave "
    "out the requests that were sent together at the start. A percentile that so few prompts can't bound (95 %) is a "
    "dash: it takes 6 for the median, 36 for p90, 72 for p95, 368 for p99."
)

CATEGORY_LEAD = (
    "The same requests by category. At one request at a time a category's rate is tokens over wall clock. With several "
    "in flight all categories are mixed, and its rate is what it would be if it filled the slots at the pace that its "
    "requests had beside the others. Acceptance is what the engine says of each request's drafts; where it says "
    "nothing, it is a dash with several in flight. Intervals are over starts and over the prompts of the category."
)


def load_section(view: View) -> Markup | None:
    """Rate, first token and time per token against concurrency; the table has all of it."""
    rows = _in_order([row for row in _rated(view) if category_of(row["condition"]) is None])
    if not rows:
        return None
    drawings = [drawing for each in _benches(rows) for drawing in _curves(view, each)]
    columns = [
        *naming(view.rows),
        Heading("in flight", lambda row: figure(row["concurrency"], 0)),
        Heading("tok/s", lambda row: rate(row["tok_s"])),
        Heading("95 % interval", lambda row: span(row["tok_s_lo"], row["tok_s_hi"], 0)),
        *_speedup_columns(view),
        *(_latency(view, name, percent) for name, percent in _SHOWN),
        Heading("requests/s", _of_load(view, "requests_s", 2)),
        *_goodput_columns(view),
        Heading("acceptance length", lambda row: figure(row["acceptance_length"])),
        Heading("requests", _of_load(view, "requests", 0)),
        Heading("cut off", _of_load(view, "cut_off", 0)),
        Heading("verdict", verdict_mark, ""),
    ]
    return section("load", "Load", LEAD, plots_of(drawings), table("Load against concurrency", columns, rows))


def category_section(view: View) -> Markup | None:
    """Speedups by category at the lightest and at the heaviest load; the table has all loads."""
    rows = _in_order([row for row in _rated(view) if category_of(row["condition"]) is not None])
    if not rows:
        return None
    drawings = [drawing for each in _benches(rows) for drawing in _bars(each)]
    shown = fair_share(rows, bench)
    columns = [
        *naming(view.rows),
        Heading("category", lambda row: category_of(row["condition"]), ""),
        Heading("in flight", lambda row: figure(row["concurrency"], 0)),
        Heading("tok/s", lambda row: rate(row["tok_s"])),
        *_speedup_columns(view),
        Heading("acceptance length", lambda row: figure(row["acceptance_length"])),
        *(_latency(view, name, percent) for name, percent in (("ttft", 50), ("tpot", 50))),
        Heading("answer, tokens", _of_load(view, "answer_tokens", 0)),
        Heading("requests", _of_load(view, "requests", 0)),
        Heading("verdict", verdict_mark, ""),
    ]
    content = table("Load by category", columns, shown)
    left_out = more(rows, "results_consolidated")
    return section("load-categories", "Load by category", CATEGORY_LEAD, plots_of(drawings), content, left_out)


_SHOWN = (("ttft", 50), ("ttft", 95), ("ttft", 99), ("tpot", 50), ("tpot", 95), ("chunk", 50), ("e2e", 50), ("e2e", 95))


def _rated(view: View) -> list[Row]:
    return [row for row in view.of(step=LOAD_STEP) if row["tok_s"] is not None]


def _curves(view: View, rows: Sequence[Row]) -> list[Markup]:
    """Three plots of one bench; rejected rows are in the table only."""
    figures: tuple[tuple[str, str, Callable[[Row], float | None]], ...] = (
        ("Throughput against load", "tokens per second", lambda row: row["tok_s"]),
        ("First token against load", "TTFT, median, ms", _value(view, "ttft_p50_ms")),
        ("Time per token against load", "TPOT, median, ms", _value(view, "tpot_p50_ms")),
    )
    made = []
    for title, unit, value in figures:
        lines = [(each[0], points) for each in _cells(rows) if (points := points_of(each, value))]
        if lines:
            made.append(plot(title, _note(rows), against_concurrency(title, unit, lines)))
    return made


def _bars(rows: Sequence[Row]) -> list[Markup]:
    known = [row for row in rows if row["speedup"] is not None and row["verdict"] == "ok"]
    loads = sorted({row["concurrency"] for row in known})
    made = []
    for number in dict.fromkeys([*loads[:1], *loads[-1:]]):
        here = [row for row in known if row["concurrency"] == number]
        names = sorted({category_of(row["condition"]) or "" for row in here})
        categories = [(name, [row for row in here if category_of(row["condition"]) == name]) for name in names]
        made.append(plot(f"Speedup by category, {number} in flight", _note(here), category_bars(categories)))
    return made


def _cells(rows: Sequence[Row]) -> list[list[Row]]:
    found: dict[tuple[str, str], list[Row]] = {}
    for row in rows:
        if row["verdict"] != "rejected":
            found.setdefault((row["run_id"], row["cell_key"]), []).append(row)
    return [*found.values()]


def _benches(rows: Sequence[Row]) -> list[list[Row]]:
    found: dict[tuple[str, ...], list[Row]] = {}
    for row in rows:
        found.setdefault((*bench(row), row["precision"], row["run_id"]), []).append(row)
    return [*found.values()]


def _in_order(rows: Sequence[Row]) -> list[Row]:
    """AR first, then by name; within a cell by category and load."""
    return sorted(
        rows,
        key=lambda row: (
            row["technique"] != "ar",
            technique_sign(row),
            row["precision"],
            row["run_id"],
            category_of(row["condition"]) or "",
            row["concurrency"],
        ),
    )


def _speedup_columns(view: View) -> list[Heading]:
    return [
        Heading("speedup", lambda row: figure(row["speedup"])),
        Heading("95 % interval", lambda row: span(row["speedup_lo"], row["speedup_hi"])),
        Heading("claim", lambda row: claim_cell(view, row), ""),
    ]


def _goodput_columns(view: View) -> list[Heading]:
    """Goodput, where any limit was stated; its heading says which."""
    limits = {(row["ttft_limit_ms"], row["tpot_limit_ms"]) for row in view.load} - {(None, None)}
    if not limits:
        return []
    said = " or ".join(sorted(_limits(ttft_ms, tpot_ms) for ttft_ms, tpot_ms in limits))
    return [
        Heading(f"goodput/s ({said})", _of_load(view, "goodput_s", 2)),
        Heading("good", lambda row: share(_value(view, "goodput_share")(row), 0)),
    ]


def _limits(ttft_ms: float | None, tpot_ms: float | None) -> str:
    parts = [f"{name} {limit:g} ms" for name, limit in (("TTFT", ttft_ms), ("TPOT", tpot_ms)) if limit is not None]
    return ", ".join(parts)


def _latency(view: View, name: str, percent: int) -> Heading:
    title = {"ttft": "TTFT", "tpot": "TPOT", "chunk": "chunk gap", "e2e": "end to end"}[name]
    return Heading(f"{title} p{percent}, ms", _of_load(view, f"{name}_p{percent}_ms", 1))


def _value(view: View, column: str) -> Callable[[Row], float | None]:
    def found(row: Row) -> float | None:
        beside = view.latencies(row)
        return None if beside is None else beside[column]

    return found


def _of_load(view: View, column: str, digits: int) -> Callable[[Row], str]:
    value = _value(view, column)
    return lambda row: figure(value(row), digits)


def _note(rows: Sequence[Row]) -> str:
    first = rows[0]
    return f"{first['model']} {first['precision']}, {first['engine']} on {first['gpu']}."
