"""Section about context depths: how fast a prompt is read and an answer written behind how many tokens."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import itemgetter

from configs.steps.depth import DECODE, PREFILL
from warehouse.ledger.verdicts import worst
from warehouse.report.display.claims import speedup_columns
from warehouse.report.display.curves import curves, lines_of
from warehouse.report.display.figures import NOTHING, Row, figure, plural, rate, span
from warehouse.report.display.markup import Child, Markup, Section, plot, plots_of, section
from warehouse.report.display.tables import Heading, naming, table, verdict_mark, without_empty
from warehouse.report.display.view import DEPTH_STEP, View, ar_first, bench, benches_of, grouped, note_of

LEAD = (
    "Each prompt has the depth's tokens and those of pp behind them, and is answered with exactly those of tg: "
    "streamed, no prompt twice, prefix cache off. Prompt processing is the whole prompt until the first answer token, "
    "generation the tokens behind the first chunk; mean ± standard deviation over runs. These are llama-benchy's "
    "figures, but for what it takes off for the wire. The peak is the most tokens per second in any {window} of a run. "
    "Speedups are over AR, by engine starts."
)


def depth_section(view: View) -> Markup | None:
    """Generation and prompt processing against depth; the table has both, a line for each cell and depth."""
    rated = [row for row in view.of(step=DEPTH_STEP) if row["tok_s"] is not None]
    if not rated:
        return None
    drawings = [drawing for each in benches_of(rated) for drawing in _drawings(each)]
    rows = _in_order(rated)
    several = len({row["concurrency"] for row in rows}) > 1 or rows[0]["concurrency"] != 1
    *_, claim = speedup_columns(view)
    columns = [
        *naming(view.rows),
        Heading("depth", lambda row: figure(row["depth_tokens"], 0)),
        *([Heading("in flight", lambda row: figure(row["concurrency"], 0))] if several else []),
        Heading(f"{_names(rated, PREFILL)} tok/s", _of(PREFILL, _mean)),
        Heading("TTFT, ms", _of(PREFILL, lambda row: figure(row["ttft_ms"], 1))),
        Heading("pp speedup", _of(PREFILL, lambda row: figure(row["speedup"]))),
        Heading(f"{_names(rated, DECODE)} tok/s", _of(DECODE, _mean)),
        Heading("95 % interval", _of(DECODE, _interval)),
        Heading("peak", _of(DECODE, lambda row: with_sd(row["peak_tok_s"], row["peak_tok_s_sd"]))),
        Heading("tg speedup", _of(DECODE, lambda row: figure(row["speedup"]))),
        Heading("95 % interval", _of(DECODE, lambda row: span(row["speedup_lo"], row["speedup_hi"]))),
        Heading("claim", _of(DECODE, claim.cell), ""),
        Heading("acceptance length", _of(DECODE, lambda row: figure(row["acceptance_length"]))),
        Heading("runs", lambda row: figure(row["repeats"], 0)),
        Heading("verdict", verdict_mark, ""),
    ]
    shown = table("Speeds at context depths", without_empty(columns, rows), rows, "results_consolidated", share=bench)
    return section("depth", "Depth", LEAD.format(window=_window(rated)), plots_of(drawings), shown)


def with_sd(mean: float | None, sd: float | None) -> str:
    """`22.1 ± 2.3`; without a deviation the mean alone."""
    if mean is None or sd is None:
        return rate(mean)
    return f"{rate(mean)} ± {figure(sd, 0 if mean >= 100 and sd >= 10 else 1)}"


def _mean(row: Row) -> str:
    return with_sd(row["tok_s_mean"], row["tok_s_sd"])


def _interval(row: Row) -> str:
    return span(row["tok_s_lo"], row["tok_s_hi"], 0 if row["tok_s"] >= 100 else 1)


def _of(mode: str, cell: Callable[[Row], Child]) -> Callable[[Row], Child]:
    """A cell about one part of a depth; a dash where that wasn't measured."""
    return lambda row: NOTHING if row[mode] is None else cell(row[mode])


def _names(rows: Sequence[Row], mode: str) -> str:
    """`pp2048`, by how the rows' conditions begin; of several lengths `pp`."""
    names = {row["condition"].split()[0] for row in rows if row["mode"] == mode}
    return names.pop() if len(names) == 1 else {PREFILL: "pp", DECODE: "tg"}[mode]


def _window(rows: Sequence[Row]) -> str:
    windows = sorted({row["peak_window_s"] for row in rows if row["peak_window_s"] is not None})
    said = ["second" if each == 1 else plural(round(1000 * each), "millisecond") for each in windows]
    return " or ".join(said) or "second"


def _in_order(rated: Sequence[Row]) -> list[Row]:
    """One row for each cell, depth and concurrency, with its two parts; AR first, then by name."""
    place = itemgetter("run_id", "concurrency", "depth_tokens")
    rows: list[Row] = []
    for both in grouped(rated, lambda row: (*place(row), row["cell_key"], row["context_tokens"])).values():
        parts = dict.fromkeys((PREFILL, DECODE)) | {row["mode"]: row for row in both}
        verdict = worst(part["verdict"] for part in parts.values() if part is not None)
        rows.append({**(parts[DECODE] or parts[PREFILL] or {}), **parts, "verdict": verdict})
    return sorted(rows, key=lambda row: (*bench(row), row["precision"], *ar_first(row), *place(row)))


def _drawings(rows: Sequence[Row]) -> list[Markup]:
    """Generation and prompt processing of one bench with one request in flight, or the fewest; no rejected rows."""
    fewest = min(row["concurrency"] for row in rows)
    made = []
    for mode, title in ((DECODE, "Token generation at depth"), (PREFILL, "Prompt processing at depth")):
        here = [row for row in rows if (row["mode"], row["concurrency"]) == (mode, fewest)]
        if lines := lines_of(here, lambda row: row["depth_tokens"], lambda row: row["tok_s_mean"]):
            depths = sorted({point.number for points in lines for point in points})
            unit = f"{_names(here, mode)}, tokens per second"
            drawing = curves(title, unit, "depth, tokens", {depth: float(depth) for depth in depths}, lines)
            flight = "one request at a time" if fewest == 1 else f"{fewest} in flight"
            made.append(plot(title, note_of(here, flight), drawing))
    return made


SECTIONS = (Section("depth", "Depth", depth_section, 35),)
