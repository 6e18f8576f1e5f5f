"""Memory: its raw tables."""

from __future__ import annotations

from warehouse.ledger.tables import CARD_COLUMNS, MEMORY_COLUMNS, ROW_IDENTITY, Column, Table

MODE = "fixed"
"""The request's answer has a fixed length, and isn't streamed."""

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
