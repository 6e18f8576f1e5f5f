"""Memory: what a cell's weights, cache and graphs take, what a draft costs in KV tokens, and energy per token."""

from __future__ import annotations

from typing import TYPE_CHECKING

from warehouse.columns import Column, Table
from warehouse.consolidate.inputs import Group
from warehouse.consolidate.rows import Made
from warehouse.display.section import Section
from warehouse.memory.rows import memory_rows
from warehouse.memory.section import memory_section
from warehouse.tables import CARD_COLUMNS, MEMORY_COLUMNS, ROW_IDENTITY

if TYPE_CHECKING:  # nodes import this file and have no polars
    from warehouse.consolidate.raw import Raw

MEMORY_STARTS = Table(
    "memory_starts",
    "one engine start: what it said of its memory, and the peaks over one request that fills the context",
    (
        *ROW_IDENTITY,
        Column("context_tokens", "i64", "prompt length asked for: max_model_len without the answer", "tokens"),
        Column("output_tokens", "i64", "output length asked for", "tokens"),
        *MEMORY_COLUMNS,
        Column("prompt_tokens", "i64", "from usage", "tokens"),
        Column("completion_tokens", "i64", "from usage", "tokens"),
        Column("wall_s", "f64", "request sent to last byte", "s"),
        *CARD_COLUMNS,
    ),
)

TABLES = (MEMORY_STARTS,)


def rows(group: Group, raw: Raw) -> Made:
    """One row per cell, of all its starts; AR's memory in the starts of a control is what it is held against."""
    return memory_rows(group, raw, MEMORY_STARTS)


SECTIONS = (Section("memory", "Memory and energy", memory_section, 65),)
