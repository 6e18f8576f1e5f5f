"""Sections about speed: AR (as the control of a cell, too), speedups, acceptance, and when tokens of streams arrive."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from math import isclose
from operator import itemgetter

from warehouse.ledger.verdicts import worst
from warehouse.report.display.claims import speedup_columns
from warehouse.report.display.curves import acceptance_lines, speedup_scatter
from warehouse.report.display.figures import NOTHING, Row, figure, lengths, rate
from warehouse.report.display.markup import FEWEST_BARS, Child, Markup, Section, apart, plot, plots_of, section, tag
from warehouse.report.display.plots import rate_bars, usual_precision
from warehouse.report.display.tables import (
    CONDITION,
    Heading,
    beside,
    fair_share,
    naming,
    on_card,
    rate_columns,
    table,
    verdict_mark,
)
from warehouse.report.display.view import APART, View, bench, grouped, headline_shape, load_name, load_shape


def controls(view: View, title: str, starts: Sequence[Row], *figures: Heading) -> list[Child]:
    """A table of AR's starts as controls, a row per cell and condition, with `figures` that each start measured."""
    if not starts:
        return []
    found = [
        {
            **each[0],
            "starts": sorted(each, key=itemgetter("visit")),
            "repeats": sum(start["repeats"] or 0 for start in each),
            "verdict": worst(start["verdict"] for start in each),
        }
        for each in grouped(starts, itemgetter("run_id", "cell_key", "condition", "mode")).values()
    ]
    share = itemgetter("run_id")
    shown = fair_share(found, share)
    cells, named = beside(view.rows, shown)
    card = on_card(shown)
    columns = (
        Heading("model", lambda control: f"{control['model']} {control['precision']}{card(control)}", ""),
        Heading("condition", lambda control: control["condition"], ""),
        *figures,
        Heading("repeats", lambda control: figure(control["repeats"], 0)),
        Heading("verdict", verdict_mark, ""),
        cells,
    )
    said = tag("p", "As the control of other cells, each engine start of AR:")
    return [said, table(title, columns, found, "visits", share=share, named=named)]


def of_each(name: str, shown: Callable[[float | None], str]) -> Callable[[Row], str]:
    """What each start of a control measured, in their order."""
    return lambda control: ", ".join(shown(start[name]) for start in control["starts"])


def baseline_section(view: View) -> Markup | None:
    """The AR table: the denominator of every speedup."""
    if view.is_told_apart():
        return None
    rows = _by_load([row for row in view.rates if row["technique"] == "ar" and row["step"] not in APART])
    lead = (
        "Plain autoregressive decoding is what every speedup below is divided by: the control that a cell brought, "
        "else the run's AR cell. Completion tokens over wall clock, not streamed, fixed output length, prefix cache "
        "off; the engine's own counters had to agree."
    )
    columns = [
        *naming(view.rows),
        CONDITION,
        Heading("verdict", verdict_mark, ""),
        *rate_columns(rows),
        Heading("speedups divided by it", partial(_divided_by, grouped(view.pairs, _load_of))),
    ]
    tables: list[Child] = [table("AR baseline", columns, rows)] if rows else []
    timed = [start for start in view.visits if start["tok_s"] is not None and start["step"] not in APART]
    spoken_for = {_of_run(row): row["tok_s"] for row in rows}
    starts = [start for start in timed if start["role"] == "control" and not _is_told(view, start, spoken_for)]
    figures = Heading("tok/s", of_each("tok_s", rate)), Heading("divided by", lambda control: _divisor(view, control))
    tables += controls(view, "AR as the control of other cells", starts, *figures)
    return section("ar", "AR baseline", lead, *(tables or [tag("p", "No AR cell has been measured.")]))


_load_of = itemgetter("run_id", "condition", "mode")
_of_run = itemgetter("run_id", "model", "precision", "condition", "mode")


def _divided_by(pairs: Mapping[object, Sequence[Row]], row: Row) -> str:
    """How many comparisons of its run have an AR cell's rate for their divisor; where cells bring controls, none."""
    values = [pair["baseline_value"] for pair in pairs.get(_load_of(row), ()) if pair["kind"] == "speed"]
    return figure(sum(isclose(value, row["tok_s"], rel_tol=1e-9) for value in values) or None, 0)


def _is_told(view: View, control: Row, rates: Mapping[tuple[str, ...], float]) -> bool:
    """Whether AR's own row of the run covers a control: nothing is divided by another rate than that."""
    own, pair = rates.get(_of_run(control)), view.speed_pair(control)
    return own is not None and (pair is None or isclose(pair["baseline_value"], own, rel_tol=1e-9))


def _divisor(view: View, control: Row) -> str:
    """What the cell's rate is really divided by: all starts of its control together; a dash where there is no pair."""
    pair = view.speed_pair(control)
    return NOTHING if pair is None else rate(pair["baseline_value"])


SPEED_LEAD = (
    "Speedup is against AR on the same machine, in the same run and under the same condition. Engine starts differ by "
    "more than repeats within one do, so the 95 % interval is Student's t on log rates over starts and repeats, and "
    "is made within a machine, never across. Within one start there is no interval of the speedup, and no claim; "
    "nor where AR was not held against itself, or differed from itself (A/A check). A claim is corrected for the "
    "number of cells, so an interval just beside 1 may carry none; it counts only where the verdict is ok."
)


def speed_section(view: View) -> Markup | None:
    """Bars per bench, and the table of speedups."""
    if view.is_told_apart():
        return None
    timed = [row for row in view.rates if row["step"] not in APART]
    rates = _by_load([row for row in timed if row["verdict"] != "rejected"])
    others = _by_load([row for row in timed if row["technique"] != "ar"])
    alike = [rows for group in _by_bench(rates) for rows in grouped(group, load_shape).values()]
    drawings = [
        plot(f"Tokens per second, {load_name(rows[0])}", _load_note(rows), rate_bars(rows))
        for rows in alike
        if len(rows) >= FEWEST_BARS
    ]
    verdict = Heading("verdict", verdict_mark, "")
    columns = [*naming(view.rows), CONDITION, *speedup_columns(view), verdict, *rate_columns(others)]
    nothing = tag("p", "Nothing but AR has been measured.")
    shown = table("Speedups over AR", columns, others) if others else nothing
    return section("speed", "Speed", SPEED_LEAD, plots_of(drawings), shown)


ACCEPTANCE_LEAD = (
    "How much of what was drafted the target kept, by the engine's counters. Acceptance length counts verification "
    "steps, each one token plus the accepted ones; tokens per step counts the steps without a draft too, of which "
    "lookup has many. A step costs at least one of AR's, so a speedup above tokens per step can't be true and is "
    "flagged."
)


def acceptance_section(view: View) -> Markup:
    """What drafts are worth: acceptance length, tokens per step, and acceptance by position."""
    drafted = _by_load([row for row in view.rates if row["acceptance_length"] is not None])
    if not drafted:
        nothing = tag("p", "Nothing that drafts has been measured.")
        return section("acceptance", "Acceptance", ACCEPTANCE_LEAD, nothing)
    drawings: list[Markup] = []
    for rows in _by_bench([row for row in drafted if row["verdict"] != "rejected"]):
        shape = headline_shape(rows)
        if shape is None:  # several workloads: their own section has each
            continue
        here = [row for row in rows if load_shape(row) == shape]
        note = f"{_bench_note(here)} {shape.condition}"
        fast = [row for row in here if row["speedup"] is not None]
        positions = [row for row in here if row["acceptance_by_position"]]
        if fast:
            bound = f"{note}; dashed: tokens per step."
            drawings.append(plot("Speedup against tokens per step", bound, speedup_scatter(fast)))
        drawings += [plot("Acceptance by draft position", note, acceptance_lines(positions))] if positions else []
    width = max(len(row["acceptance_by_position"] or ()) for row in drafted)
    columns = [
        *naming(view.rows),
        CONDITION,
        Heading("acceptance length", lambda row: figure(row["acceptance_length"])),
        Heading("tokens per step", lambda row: figure(row["tokens_per_step"])),
        Heading("source", lambda row: row["acceptance_source"] or NOTHING, ""),
        *(Heading(f"pos. {place + 1}", partial(_position, place)) for place in range(width)),
    ]
    shown = table("Acceptance", columns, drafted)
    return section("acceptance", "Acceptance", ACCEPTANCE_LEAD, plots_of(drawings), shown)


def _position(place: int, row: Row) -> str:
    shares = row["acceptance_by_position"] or ()
    return figure(shares[place]) if place < len(shares) else ""


def _by_bench(rows: Sequence[Row]) -> list[list[Row]]:
    groups = grouped(rows, bench)
    return [groups[key] for key in sorted(groups)]


def _by_load(rows: Sequence[Row]) -> list[Row]:
    """By load shape, lightest first; within a shape AR first, then the fastest."""

    def place(row: Row) -> tuple[object, ...]:
        shape = row["concurrency"] or 0, row["context_tokens"] or 0, row["condition"], row["mode"]
        return *shape, row["technique"] != "ar", -row["tok_s"]

    return sorted(rows, key=place)


def _bench_note(rows: Sequence[Row]) -> str:
    first = rows[0]
    return f"{first['model']} {usual_precision(rows)}, {first['engine']} on {first['gpu']}."


def _load_note(rows: Sequence[Row]) -> str:
    """The bench, the lengths that were asked for, and a note where the bars are not of one machine."""
    asked = lengths(rows[0])
    return _bench_note(rows) + (f" {asked}." if asked else "") + apart(rows, "speedups")


LATENCY_LEAD = (
    "Medians of streamed requests of the same shape. TPOT is computed from token counts, never from chunks, and a "
    "stream that disagrees with the headline rate is rejected. Streaming is never used for tokens per second."
)

IN_STEP = (
    "With several requests in flight AR's answers, all of one length, end together, so the prompts behind them wait "
    "for one another, which a draft's don't: the load step's TTFT is the one to compare."
)
"""Where such rows are shown."""


def latency_section(view: View) -> Markup | None:
    """Streamed TTFT and TPOT, medians in ms."""
    if view.is_told_apart():
        return None
    rows = [row for row in view.rows if row["mode"] == "stream"]
    tables: list[Child] = []
    if rows:
        columns = [
            *naming(view.rows),
            CONDITION,
            Heading("TTFT, ms", lambda row: figure(row["ttft_ms"], 1)),
            Heading("TPOT, ms", lambda row: figure(row["tpot_ms"])),
            Heading("verdict", verdict_mark, ""),
        ]
        tables.append(table("Time to first token and per output token", columns, rows))
    starts = [start for start in view.visits if start["role"] == "control" and start["ttft_ms"] is not None]
    figures = (
        Heading("TTFT, ms", of_each("ttft_ms", lambda ms: figure(ms, 1))),
        Heading("TPOT, ms", of_each("tpot_ms", figure)),
    )
    tables += controls(view, "The same of AR as the control of other cells", starts, *figures)
    if any((row["concurrency"] or 1) > 1 for row in rows):
        tables.insert(0, tag("p", IN_STEP))
    return section("latency", "Latency", LATENCY_LEAD, *(tables or [tag("p", "Nothing was streamed.")]))


SECTIONS = (
    Section("ar", "AR baseline", baseline_section, 10),
    Section("speed", "Speed", speed_section, 20),
    Section("acceptance", "Acceptance", acceptance_section, 30),
    Section("latency", "Latency", latency_section, 60),
)
