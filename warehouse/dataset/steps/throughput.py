"""Throughput: tokens per second under each load shape, and the speedup over AR."""

from __future__ import annotations

from warehouse.dataset.consolidate.inputs import Group, Raw
from warehouse.dataset.consolidate.rows import Made
from warehouse.dataset.consolidate.speed.rows import speed_rows
from warehouse.dataset.consolidate.speed.starts import by_attempt, in_order, leaving_out_unsteady, timed_starts
from warehouse.ledger.timed_tables import REQUESTS, WINDOWS

TABLES = (REQUESTS, WINDOWS)


def rows(group: Group, raw: Raw) -> Made:
    """One row per condition and mode, made of all starts, and one per start; their pairs are settled run by run."""
    measured = {
        step.identity: timed_starts(step, raw, raw.rows(step, WINDOWS, in_order), raw.rows(step, REQUESTS, by_attempt))
        for step in group
        if step.wrote(WINDOWS)
    }
    return speed_rows(group, leaving_out_unsteady(measured), raw)
