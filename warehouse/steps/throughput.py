"""Throughput: tokens per second under each load shape, and the speedup over AR."""

from __future__ import annotations

from typing import TYPE_CHECKING

from warehouse.consolidate.inputs import Group
from warehouse.consolidate.rows import Made
from warehouse.consolidate.speed.rows import speed_rows
from warehouse.consolidate.speed.visits import by_attempt, in_order, visited
from warehouse.display.latency_section import latency_section
from warehouse.display.section import Section
from warehouse.display.speed_sections import acceptance_section, baseline_section, speed_section
from warehouse.timed.tables import REQUESTS, WINDOWS

if TYPE_CHECKING:  # nodes import this file and have no polars
    from warehouse.consolidate.raw import Raw

TABLES = (REQUESTS, WINDOWS)


def rows(group: Group, raw: Raw) -> Made:
    """One row per condition and mode, made of all visits, and one per visit; their pairs are settled run by run."""
    measured = {
        step.identity: visited(step, raw, raw.rows(step, WINDOWS, in_order), raw.rows(step, REQUESTS, by_attempt))
        for step in group
        if step.wrote(WINDOWS)
    }
    return speed_rows(group, measured, raw)


SECTIONS = (
    Section("ar", "AR baseline", baseline_section, 10),
    Section("speed", "Speed", speed_section, 20),
    Section("acceptance", "Acceptance", acceptance_section, 30),
    Section("latency", "Latency", latency_section, 60),
)
