"""Rows as Parquet parts: written once, named by a commit, read back by an attempt that goes on after a preemption."""

from __future__ import annotations

import hashlib
import io
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from configs.secrets import redacted_rows
from warehouse.ledger.store import StoreError
from warehouse.ledger.tables import SCHEMA_VERSION, Table

Row = Mapping[str, Any]

_ARROW = {
    "str": pa.string(),
    "i64": pa.int64(),
    "f64": pa.float64(),
    "bool": pa.bool_(),
    "list[str]": pa.list_(pa.string()),
    "list[i64]": pa.list_(pa.int64()),
    "list[f64]": pa.list_(pa.float64()),
}


def arrow_schema(table: Table) -> Any:
    """The table's pyarrow schema, with units and meanings as field metadata."""
    fields = []
    for column in table.columns:
        facts = {"meaning": column.meaning} | ({"unit": column.unit} if column.unit else {})
        fields.append(pa.field(column.name, _ARROW[column.type], nullable=not column.required, metadata=facts))
    return pa.schema(fields)


def encode(table: Table, rows: Sequence[Row], facts: Mapping[str, str] | None = None) -> bytes:
    """Rows as one zstd Parquet file; `facts` is what else its footer says, e.g. who wrote it.

    Raises:
        ValueError: a row has a column that the table doesn't declare, or lacks a required one.
    """
    schema = arrow_schema(table)
    known = set(schema.names)
    for row in rows:
        unknown = set(row) - known
        if unknown:
            raise ValueError(f"table {table.name} has no column {sorted(unknown)[0]!r}")
    for column in table.columns:
        if column.required and any(row.get(column.name) is None for row in rows):
            raise ValueError(f"table {table.name}: a row lacks the required column {column.name!r}")
    data = pa.Table.from_pylist(redacted_rows(rows), schema=schema)
    said = {"schema_version": str(SCHEMA_VERSION), "table": table.name} | dict(facts or {})
    footer = {**(schema.metadata or {}), **{name.encode(): text.encode() for name, text in said.items()}}
    buffer = io.BytesIO()
    pq.write_table(data.replace_schema_metadata(footer), buffer, compression="zstd")
    return buffer.getvalue()


def decode(data: bytes, key: str) -> list[dict[str, Any]]:
    """The rows of one part.

    Raises:
        StoreError: the bytes are not a Parquet file.
    """
    rows: list[dict[str, Any]] = _opened(data, key).read(use_threads=False).to_pylist()
    return rows


def facts_of(data: bytes, key: str) -> dict[str, str]:
    """What the footer of one part says.

    Raises:
        StoreError: the bytes are not a Parquet file.
    """
    said = _opened(data, key).schema_arrow.metadata or {}
    return {name.decode(): text.decode() for name, text in said.items()}


def _opened(data: bytes, key: str) -> Any:
    """A file that is read by this thread alone.

    Arrow's own threads release Python's bytes at any time. In a process that ends meanwhile they wait for its
    interpreter, and abort the process after its last line (apache/arrow issue 34314). One `sweep regrade` of twelve
    ended so.
    """
    try:
        return pq.ParquetFile(pa.BufferReader(data), pre_buffer=False)
    except pa.ArrowInvalid as error:
        raise StoreError(f"{key} is not a readable Parquet file: {error}") from error


def sha256_hex(data: bytes) -> str:
    """Content hash of a part, as commits list it."""
    return hashlib.sha256(data).hexdigest()
