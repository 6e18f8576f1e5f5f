"""Section about named workloads: what each takes, what a technique gains on it, whether its program is right."""

from __future__ import annotations

from collections.abc import Sequence

from configs.steps.prompts import workload_of
from warehouse.report.display.claims import speedup_columns
from warehouse.report.display.figures import NOTHING, Row, figure, rate, span
from warehouse.report.display.markup import Markup, Section, plots_of, section, tag
from warehouse.report.display.plots import speedup_plots
from warehouse.report.display.tables import Heading, naming, percent, table, verdict_mark
from warehouse.report.display.view import PROMPTS_STEP, View, ar_first, bench, benches_of, note_of

LEAD = (
    "Named prompts, each asked by itself and several at once: copies of one prompt are sent together, answers end by "
    "themselves or at the cap, and the clock stops with the last. Copies mostly write the same tokens, so a mixture of "
    "experts reads fewer experts for them than for prompts that differ, and is faster here than under such a load. "
    "Characters per second compare languages, whose "
    "tokens hold more or less. A program is taken out of its answer, run where it has no files and no network, and "
    "held to what its prompt asked, so fast and correct stand in one row, with how many different answers that is: a "
    "greedy prompt that is asked again writes the same, and is no further trial. A wrong one is a result, no fault of "
    "the measurement."
)


def workload_section(view: View) -> Markup | None:
    """Speedups by workload at each concurrency; the table has seconds, rates and programs."""
    rows = _in_order([row for row in view.of(step=PROMPTS_STEP) if row["tok_s"] is not None])
    if not rows:
        return None
    drawings: list[Markup] = []
    for alike in benches_of(rows):
        known = [row for row in alike if row["speedup"] is not None and row["verdict"] == "ok"]
        names, loads = [*dict.fromkeys(map(_workload, alike))], sorted({row["concurrency"] for row in known})
        drawings += speedup_plots(known, "workload", _workload, names, loads, note_of(alike))
    shown = table("Workloads", _columns(view, rows), rows, "results_consolidated", share=bench)
    return section("workloads", "Workloads", LEAD, plots_of(drawings), shown)


def _columns(view: View, rows: Sequence[Row]) -> list[Heading]:
    width = max(len(row["acceptance_by_position"] or ()) for row in rows)
    asks_programs = any(row["programs"] is not None for row in rows)
    columns = [
        *naming(view.rows),
        Heading("workload", _workload, ""),
        Heading("language", lambda row: row["language"] or NOTHING, ""),
        Heading("in flight", lambda row: figure(row["concurrency"], 0)),
        *([Heading("programs correct", _programs, "")] if asks_programs else []),
        Heading("seconds", lambda row: figure(row["answer_s"])),
        Heading("tok/s", lambda row: rate(row["tok_s"])),
        Heading("95 % interval", lambda row: span(row["tok_s_lo"], row["tok_s_hi"], 0)),
        Heading("chars/s", lambda row: rate(row["chars_s"])),
        *speedup_columns(view),
    ]
    if width:
        columns.append(Heading("acceptance length", lambda row: figure(row["acceptance_length"])))
        columns.append(Heading("accepted by position", _positions, ""))
    cut_off = Heading("cut off", lambda row: figure(row["truncated"], 0))
    return [*columns, cut_off, Heading("verdict", verdict_mark, "")]


def _programs(row: Row) -> Markup | str:
    """`3 of 4, 2 answers`, in colour; what was not run says so."""
    number, right, distinct = row["programs"], row["programs_correct"], row["programs_distinct"]
    if number is None:
        return NOTHING
    if not number:
        return tag("span", "not run", class_="suspect")
    correct = round(right * number)
    colour = "ok" if correct == number else "rejected" if not correct else "suspect"
    answers = "" if distinct is None else ", one answer" if distinct == 1 else f", {distinct} answers"
    return tag("span", f"{correct} of {number}{answers}", class_=colour)


def _positions(row: Row) -> str:
    return " / ".join(percent(each, 0) for each in row["acceptance_by_position"] or ()) or NOTHING


def _workload(row: Row) -> str:
    return workload_of(row["condition"])


def _in_order(rows: Sequence[Row]) -> list[Row]:
    """By workload and load, so that a workload's cells are together; among them AR first, then by name."""

    def place(row: Row) -> tuple[object, ...]:
        return *bench(row), _workload(row), row["concurrency"], *ar_first(row), row["precision"], row["run_id"]

    return sorted(rows, key=place)


SECTIONS = (Section("workloads", "Workloads", workload_section, 42),)
