"""The section about streams: when tokens arrive, of cells and of the AR beside them."""

from __future__ import annotations

from warehouse.report.display.figures import figure
from warehouse.report.display.markup import Child, Markup, tag
from warehouse.report.display.rate_columns import CONDITION
from warehouse.report.display.section import Section, section
from warehouse.report.display.speed_sections import (
    acceptance_section,
    baseline_section,
    controls,
    of_each,
    speed_section,
)
from warehouse.report.display.tables import Heading, naming, table, verdict_mark
from warehouse.report.display.view import View

LEAD = (
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
    return section("latency", "Latency", LEAD, *(tables or [tag("p", "Nothing was streamed.")]))


SECTIONS = (
    Section("ar", "AR baseline", baseline_section, 10),
    Section("speed", "Speed", speed_section, 20),
    Section("acceptance", "Acceptance", acceptance_section, 30),
    Section("latency", "Latency", latency_section, 60),
)
