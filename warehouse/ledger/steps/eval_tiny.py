"""Eval tiny: its raw tables."""

from __future__ import annotations

from warehouse.ledger.tables import ROW_IDENTITY, Column, Table

EVAL_ITEMS = Table(
    "eval_items",
    "one answered question",
    (
        *ROW_IDENTITY,
        Column("item_id", "str", "the question, the same in every cell", required=True),
        Column("kind", "str", "which sort of question"),
        Column("gold", "str", "the right answer"),
        Column("last_letter", "str", "extractor last-letter: last answer letter of the body; null: none found"),
        Column("first_letter", "str", "extractor first-letter: first letter anywhere, thinking included"),
        Column("finish_reason", "str", "as the engine said; length means cut off"),
        Column("completion_tokens", "i64", "from usage", "tokens"),
        Column("body", "str", "the answer without the thinking, as the model wrote it"),
        Column("reasoning", "str", "the thinking, as the model wrote it"),
    ),
)
