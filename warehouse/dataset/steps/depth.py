"""Depth: prompt processing and token generation at context depths, as llama-benchy tells them."""

from __future__ import annotations

from warehouse.dataset.loads.depths import depth_rows as rows
from warehouse.ledger.timed_tables import DEPTH

__all__ = ["TABLES", "rows"]

TABLES = DEPTH
