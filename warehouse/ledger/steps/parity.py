"""Parity: its raw tables."""

from __future__ import annotations

from warehouse.ledger.tables import ROW_IDENTITY, Column, Table

PARITY_OUTPUTS = Table(
    "parity_outputs",
    "one greedy output of one prompt",
    (
        *ROW_IDENTITY,
        Column("prompt_id", "str", "the prompt, the same in every cell", required=True),
        Column("pass", "i64", "0: first pass; 1: again, on an AR cell the control", required=True),
        Column("token_ids", "list[i64]", "the output's token ids"),
        Column("finish_reason", "str", "as the engine said"),
        Column("text", "str", "the output, as the model wrote it"),
        Column("top2_gap", "list[f64]", "between the best and the second best token, at each token", "nats"),
        Column("mean_logprob", "f64", "of the output's tokens under the model itself; null: not sent", "nats"),
    ),
)
