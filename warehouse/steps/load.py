"""Load: rates, latencies and goodput of a prompt suite against concurrency and against rate; speedups by category."""

from __future__ import annotations

from warehouse.display.section import Section
from warehouse.loads.rows import load_rows as rows
from warehouse.loads.section import category_section, load_section, rate_section
from warehouse.timed.tables import LOAD

__all__ = ["SECTIONS", "TABLES", "rows"]

TABLES = LOAD

SECTIONS = (
    Section("load", "Load", load_section, 32),
    Section("load-rates", "Load on a schedule", rate_section, 33),
    Section("load-categories", "Load by category", category_section, 34),
)
