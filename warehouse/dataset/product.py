"""Product tables as files: Parquet with meanings in its schema, CSV for spreadsheets, and the data dictionary."""

from __future__ import annotations

import hashlib
import io
import json
from collections.abc import Mapping, Sequence
from typing import Any

import polars as pl

from warehouse.dataset.build import Consolidated
from warehouse.dataset.known_steps import raw_tables
from warehouse.dataset.tables import PRODUCT_TABLES, RESULTS_CONSOLIDATED
from warehouse.ledger.columns import Table
from warehouse.ledger.parts import Row, encode
from warehouse.ledger.tables import SCHEMA_VERSION

CSV_TABLES = (RESULTS_CONSOLIDATED.name,)
"""Tables that are also written as CSV."""

DICTIONARY_KEY = "DATA_DICTIONARY.md"
"""Where the data dictionary is kept in a store."""

HASHED_DIGITS = 9
"""Significant digits of a float that count as content: sums differ in the last bits from machine to machine."""


def product_rows(built: Consolidated) -> dict[str, list[Row]]:
    """Rows by the name of their product table."""
    return {
        "results_consolidated": [*built.results],
        "pairs": [*built.pairs],
        "visits": [*built.visits],
        "load": [*built.load],
        "k_curves": [*built.k_curves],
        "recommendations": [*built.recommendations],
        "attempts": [*built.attempts],
    }


def product_files(rows: Mapping[str, Sequence[Row]]) -> dict[str, bytes]:
    """File name to bytes: every product table as Parquet, the results as CSV too."""
    files: dict[str, bytes] = {}
    for name, table in PRODUCT_TABLES.items():
        data = encode(table, rows[name])
        files[f"{name}.parquet"] = data
        if name in CSV_TABLES:
            files[f"{name}.csv"] = as_csv(pl.read_parquet(io.BytesIO(data)))
    return files


def as_csv(frame: pl.DataFrame) -> bytes:
    """The frame as CSV; a list is JSON text, null is an empty field."""
    lists = [name for name, kind in frame.schema.items() if isinstance(kind, pl.List)]
    texts = [
        pl.Series(name, [None if value is None else json.dumps(value.to_list()) for value in frame[name]], pl.String)
        for name in lists
    ]
    return frame.with_columns(texts).write_csv().encode()


def content_hash(rows: Mapping[str, Sequence[Row]]) -> str:
    """sha256 over tables, columns and values: the same for the same content, whatever wrote the bytes."""
    hasher = hashlib.sha256(f"schema {SCHEMA_VERSION}\n".encode())
    for name, table in sorted(PRODUCT_TABLES.items()):
        columns = table.column_names()
        hasher.update(json.dumps([name, columns]).encode())
        for row in rows[name]:
            hasher.update(json.dumps([_canonical(row.get(column)) for column in columns]).encode())
    return hasher.hexdigest()


def _canonical(value: Any) -> Any:
    if isinstance(value, float):
        return f"{value:.{HASHED_DIGITS}g}"
    if isinstance(value, list | tuple):
        return [_canonical(item) for item in value]
    return value


def data_dictionary() -> str:
    """Every table and column in words, as Markdown made from their declarations."""
    lines = [
        "# Data dictionary",
        "",
        "Made from `warehouse/dataset/tables.py`, `warehouse/ledger/tables.py` and `warehouse/ledger/steps/`.",
        "What does not apply is null, never 0 or an empty string.",
        "",
        "Product tables (`results_consolidated` is also a CSV, with lists as JSON text):",
    ]
    for table in PRODUCT_TABLES.values():
        lines += _described(table)
    lines += ["", "Raw tables, in the parts that commits name:"]
    for table in raw_tables().values():
        lines += _described(table)
    return "\n".join(lines) + "\n"


def _described(table: Table) -> list[str]:
    lines = ["", f"## {table.name}", "", f"One row: {table.row}.", "", "| column | type | unit | null | meaning |"]
    lines.append("|---|---|---|---|---|")
    for column in table.columns:
        null = "no" if column.required else "yes"
        meaning = column.meaning.replace("|", "\\|")
        lines.append(f"| `{column.name}` | {column.type} | {column.unit} | {null} | {meaning} |")
    return lines
