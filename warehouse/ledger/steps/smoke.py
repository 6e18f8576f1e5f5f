"""Smoke: its raw tables."""

from __future__ import annotations

from warehouse.ledger.tables import ROW_IDENTITY, Column, Table

SANITY = Table(
    "sanity",
    "one answer to a question that no working model misses",
    (
        *ROW_IDENTITY,
        Column("question_id", "str", "one of ten, the same for all models but the demo family", required=True),
        Column("language", "str", "of the question: en, de, ko, zh; demo: the demo family's own words"),
        Column("prompt", "str", "the question"),
        Column("wanted", "str", "the answer as a reader would write it; what is read is more tolerant"),
        Column("body", "str", "the answer without the thinking, as the model wrote it: data, never markup"),
        Column("reasoning", "str", "the thinking, as the model wrote it"),
        Column("is_right", "bool", "the wanted answer was read in the body; cut off: never", required=True),
        Column("finish_reason", "str", "as the engine said; length means cut off"),
        Column("completion_tokens", "i64", "from usage, thinking included", "tokens"),
        Column("mean_logprob", "f64", "of the answer's tokens under the model itself; null: not sent", "nats"),
    ),
)
