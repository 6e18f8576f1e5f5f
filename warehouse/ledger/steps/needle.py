"""Needle: its raw tables."""

from __future__ import annotations

from warehouse.ledger.tables import ROW_IDENTITY, Column, Table

NEEDLES = Table(
    "needles",
    "one question for a hidden sentence",
    (
        *ROW_IDENTITY,
        Column("context_tokens", "i64", "length of the whole prompt, as asked for", "tokens", required=True),
        Column("depth_percent", "i64", "share of it before the hidden sentence, as asked for", "%", required=True),
        Column("seed", "i64", "which text of this length and depth, from 0", required=True),
        Column("prompt_tokens", "i64", "length that was sent, from usage: the chat template included", "tokens"),
        Column("depth_tokens", "i64", "text that stood before the hidden sentence", "tokens"),
        Column("prompt_hash", "str", "first 16 hex digits of sha256 over the user message"),
        Column("needle", "str", "the hidden sentence"),
        Column("gold", "str", "its number"),
        Column("answer", "str", "extractor exact: the last number of the body; null: it has none"),
        Column("correct", "bool", "whether they are the same"),
        Column("truncated", "bool", "whether the answer was cut off by the length limit"),
        Column("blank", "bool", "whether it has no body"),
        Column("completion_tokens", "i64", "from usage", "tokens"),
        Column("body", "str", "the answer without the thinking, as the model wrote it"),
    ),
)
