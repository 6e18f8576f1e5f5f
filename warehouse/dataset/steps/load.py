"""Load: rates, latencies and goodput of a prompt suite against concurrency and against rate; speedups by category."""

from __future__ import annotations

from warehouse.dataset.loads.rows import load_rows as rows
from warehouse.ledger.timed_tables import LOAD

__all__ = ["TABLES", "rows"]

TABLES = LOAD
