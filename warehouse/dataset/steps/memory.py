"""Memory: what a cell's weights, cache and graphs take, what a draft costs in KV tokens, and energy per token."""

from __future__ import annotations

from warehouse.dataset.consolidate.inputs import Group
from warehouse.dataset.consolidate.raw import Raw
from warehouse.dataset.consolidate.rows import Made
from warehouse.dataset.memory.rows import memory_rows
from warehouse.ledger.steps.memory import MEMORY_STARTS

TABLES = (MEMORY_STARTS,)


def rows(group: Group, raw: Raw) -> Made:
    """One row per cell, of all its starts; AR's memory in the starts of a control is what it is held against."""
    return memory_rows(group, raw, MEMORY_STARTS)
