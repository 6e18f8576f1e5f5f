"""Sections about speed: AR, speedups, acceptance, latency."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from warehouse.display.figures import NOTHING, Row, figure, rate, span, usd
from warehouse.display.markup import Markup, tag
from warehouse.display.plots import acceptance_lines, rate_bars, speedup_scatter, usual_precision
from warehouse.display.section import plot, section
from warehouse.display.tables import Heading, naming, table, verdict_mark
from warehouse.display.view import View, bench, headline_condition


def baseline_section(view: View) -> Markup:
    """The AR table: the denominator of every speedup."""
    rows = _by_load([row for row in view.rates() if row["technique"] == "ar"])
    lead = (
        "Plain autoregressive decoding is what every speedup below is divided by. Completion tokens over wall clock, "
        "not streamed, fixed output length, prefix cache off; the engine's own counters had to agree."
    )
    if not rows:
        return section("ar", "AR baseline", lead, tag("p", "No AR cell has been measured."))
    return section("ar", "AR baseline", lead, table("AR baseline", [*naming(view.rows), *_rate_columns(rows)], rows))


def speed_section(view: View) -> Markup:
    """Bars per bench, and the table of speedups."""
    rates = _by_load([row for row in view.rates() if row["verdict"] != "rejected"])
    others = _by_load([row for row in view.rates() if row["technique"] != "ar"])
    lead = (
        "Speedup is against the AR cell of the same run, model, precision, engine and machine under the same "
        "condition, with a 95 % bootstrap interval over the repeats of both. Only rows with verdict ok have one."
    )
    drawings = [
        plot(f"Tokens per second, {shape}", _bench_note(rows), rate_bars(rows)) for shape, rows in _by_shape(rates)
    ]
    if not others:
        return section("speed", "Speed", lead, _plots(drawings), tag("p", "Nothing but AR has been measured."))
    columns = [
        *naming(view.rows),
        Heading("condition", lambda row: row["condition"], ""),
        Heading("speedup", lambda row: figure(row["speedup"])),
        Heading("95 % interval", lambda row: span(row["speedup_lo"], row["speedup_hi"])),
        *_rate_columns(others)[1:],
        Heading("verdict", verdict_mark, ""),
    ]
    return section("speed", "Speed", lead, _plots(drawings), table("Speedups over AR", columns, others))


def acceptance_section(view: View) -> Markup:
    """What drafts are worth: acceptance length, and acceptance by position."""
    drafted = _by_load([row for row in view.rates() if row["acceptance_length"] is not None])
    lead = (
        "How much of what was drafted the target kept, by the engine's counters. A verification step commits one token "
        "plus the accepted ones, so a speedup above the dashed line can't be true and is flagged."
    )
    if not drafted:
        return section("acceptance", "Acceptance", lead, tag("p", "Nothing that drafts has been measured."))
    drawings: list[Markup] = []
    for rows in _by_bench([row for row in drafted if row["verdict"] != "rejected"]):
        shape = headline_condition(rows)
        here = [row for row in rows if (row["condition"], row["mode"]) == shape]
        note = f"{_bench_note(here)} {shape[0] if shape else ''}"
        fast = [row for row in here if row["speedup"] is not None]
        positions = [row for row in here if row["acceptance_by_position"]]
        drawings += [plot("Speedup against acceptance", note, speedup_scatter(fast))] if fast else []
        drawings += [plot("Acceptance by draft position", note, acceptance_lines(positions))] if positions else []
    width = max(len(row["acceptance_by_position"] or ()) for row in drafted)
    columns = [
        *naming(view.rows),
        Heading("condition", lambda row: row["condition"], ""),
        Heading("tokens per step", lambda row: figure(row["acceptance_length"])),
        Heading("source", lambda row: row["acceptance_source"] or NOTHING, ""),
        *(Heading(f"pos. {place + 1}", _position(place)) for place in range(width)),
    ]
    return section("acceptance", "Acceptance", lead, _plots(drawings), table("Acceptance", columns, drafted))


def latency_section(view: View) -> Markup:
    """Streamed TTFT and TPOT, medians in ms."""
    rows = [row for row in view.rows if row["mode"] == "stream"]
    lead = (
        "Medians of streamed requests of the same shape. TPOT is computed from token counts, never from chunks, and a "
        "stream that disagrees with the headline rate is rejected. Streaming is never used for tokens per second."
    )
    if not rows:
        return section("latency", "Latency", lead, tag("p", "Nothing was streamed."))
    columns = [
        *naming(view.rows),
        Heading("condition", lambda row: row["condition"], ""),
        Heading("TTFT, ms", lambda row: figure(row["ttft_ms"], 1)),
        Heading("TPOT, ms", lambda row: figure(row["tpot_ms"])),
        Heading("verdict", verdict_mark, ""),
    ]
    return section("latency", "Latency", lead, table("Time to first token and per output token", columns, rows))


def _rate_columns(rows: Sequence[Row]) -> list[Heading]:
    columns = [
        Heading("condition", lambda row: row["condition"], ""),
        Heading("tok/s", lambda row: rate(row["tok_s"])),
        Heading("95 % interval", lambda row: span(row["tok_s_lo"], row["tok_s_hi"], 0)),
        Heading("repeats", lambda row: figure(row["repeats"], 0)),
        Heading("cv", lambda row: NOTHING if row["cv"] is None else f"{row['cv']:.1%}"),
        Heading("chars/s", lambda row: rate(row["chars_s"])),
    ]
    if any(row["mbu"] is not None for row in rows):
        columns.append(Heading("MBU", lambda row: NOTHING if row["mbu"] is None else f"{row['mbu']:.0%}"))
    if any(row["usd_per_mtok"] for row in rows):
        columns.append(Heading("USD per M tokens", lambda row: usd(row["usd_per_mtok"])))
    if any(row["technique"] == "ar" for row in rows):
        columns.append(Heading("verdict", verdict_mark, ""))
    return columns


def _position(place: int) -> Callable[[Row], str]:
    def shown(row: Row) -> str:
        shares = row["acceptance_by_position"] or ()
        return figure(shares[place]) if place < len(shares) else ""

    return shown


def _by_bench(rows: Sequence[Row]) -> list[list[Row]]:
    groups: dict[tuple[str, ...], list[Row]] = {}
    for row in rows:
        groups.setdefault(bench(row), []).append(row)
    return [groups[key] for key in sorted(groups)]


def _by_shape(rows: Sequence[Row]) -> list[tuple[str, list[Row]]]:
    """Rows that share a bar plot, with the name of their load shape."""
    found: list[tuple[str, list[Row]]] = []
    for group in _by_bench(rows):
        shapes: dict[tuple[str, str], list[Row]] = {}
        for row in group:
            shapes.setdefault((row["condition"], row["mode"]), []).append(row)
        found += [(name if mode == "fixed" else f"{name} ({mode})", shapes[name, mode]) for name, mode in shapes]
    return found


def _by_load(rows: Sequence[Row]) -> list[Row]:
    """By load shape, lightest first; within a shape AR first, then the fastest."""
    shape = ("concurrency", "context_tokens")
    return sorted(
        rows,
        key=lambda row: (
            *(row[name] or 0 for name in shape),
            row["condition"],
            row["mode"],
            row["technique"] != "ar",
            -row["tok_s"],
        ),
    )


def _bench_note(rows: Sequence[Row]) -> str:
    first = rows[0]
    return f"{first['model']} {usual_precision(rows)}, {first['engine']} on {first['gpu']}."


def _plots(drawings: Sequence[Markup]) -> Markup | None:
    return tag("div", *drawings, class_="plots") if drawings else None
