"""Toy: its raw tables."""

from __future__ import annotations

from warehouse.ledger.tables import ROW_IDENTITY, Column, Table

GREETINGS = Table(
    "greetings",
    "one answered greeting",
    (
        *ROW_IDENTITY,
        Column("number", "i64", "which greeting, from 0", required=True),
        Column("answer", "str", "as the model wrote it"),
    ),
)
