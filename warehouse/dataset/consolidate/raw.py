"""From committed parts to small frames: a part is read once, when asked for, checked with its commit and reduced."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import polars as pl
from polars.exceptions import PolarsError

from warehouse.dataset.consolidate.inputs import READERS, STEP, CommittedStep, Identity
from warehouse.ledger.commits import Part
from warehouse.ledger.parts import sha256_hex
from warehouse.ledger.store import Store, StoreError
from warehouse.ledger.tables import ColumnType, Table

Rows = list[dict[str, Any]]

Reduce = Callable[[pl.LazyFrame], pl.LazyFrame]
"""Turns many rows into few, or into other columns; a module's function, because results are cached by it."""

POLARS_TYPES: dict[ColumnType, Any] = {
    "str": pl.String,
    "i64": pl.Int64,
    "f64": pl.Float64,
    "bool": pl.Boolean,
    "list[str]": pl.List(pl.String),
    "list[i64]": pl.List(pl.Int64),
    "list[f64]": pl.List(pl.Float64),
}


def polars_schema(table: Table) -> pl.Schema:
    """The table's columns as polars types, in declared order."""
    return pl.Schema({column.name: POLARS_TYPES[column.type] for column in table.columns})


def unchanged(frame: pl.LazyFrame) -> pl.LazyFrame:
    """The default `Reduce`: the rows as they were written."""
    return frame


class Raw:
    """Raw rows of a batch of committed steps: a table's parts are read once, and reduced, when a step asks for it.

    What no step asks for (the tape of every evaluation) stays in the store.
    """

    def __init__(self, store: Store, steps: Sequence[CommittedStep]) -> None:
        """Of these steps, all of each cell; nothing is read yet."""
        self._store = store
        self._steps: dict[tuple[str, str], list[CommittedStep]] = {}
        for step in steps:
            self._steps.setdefault((step.run_id, step.cell_key), []).append(step)
        self._parts: dict[str, list[Part]] = {}
        for part in (part for step in steps for part in step.commit.parts):
            self._parts.setdefault(part.table, []).append(part)
        self._data: dict[str, list[bytes]] = {}
        self._frames: dict[tuple[str, Reduce], dict[Identity, pl.DataFrame]] = {}
        self._rows: dict[tuple[str, Reduce], dict[Identity, Rows]] = {}

    def beside(self, step: CommittedStep) -> list[CommittedStep]:
        """All committed steps of the step's cell, itself included: a cell is never split between batches."""
        return self._steps[step.run_id, step.cell_key]

    def rows(self, step: CommittedStep, table: Table, reduce: Reduce = unchanged) -> Rows:
        """A step's rows of a table as Python dicts, so reduce them to few; `frame` is for many."""
        key = (table.name, reduce)
        if key not in self._rows:
            found = self._rows[key] = {}
            for row in self._collected(table, reduce).iter_rows(named=True):
                found.setdefault((row["run_id"], row["cell_key"], row["step"]), []).append(row)
        return self._rows[key].get(step.identity, [])

    def frame(self, step: CommittedStep, table: Table, reduce: Reduce = unchanged) -> pl.DataFrame | None:
        """A step's rows of a table; None: it has none.

        `reduce` is applied first, to all rows of the batch, and must keep the columns `STEP`. Columns that older parts
        lack are null.

        Raises:
            StoreError: a part is missing, is not what its commit says, or has columns that this version doesn't know.
        """
        key = (table.name, reduce)
        if key not in self._frames:
            split = self._collected(table, reduce).partition_by(*STEP, as_dict=True, include_key=False)
            self._frames[key] = {(str(run), str(cell), str(name)): frame for (run, cell, name), frame in split.items()}
        return self._frames[key].get(step.identity)

    def _collected(self, table: Table, reduce: Reduce) -> pl.DataFrame:
        try:
            return reduce(_scan(self._verified(table.name), table)).collect(engine="streaming")
        except PolarsError as error:
            raise StoreError(f"parts of table {table.name} can't be read (a newer specsweep's?): {error}") from error

    def _verified(self, table: str) -> list[bytes]:
        """Bytes of a table's parts, each compared with the hash that its commit recorded; fetched once."""
        if table not in self._data:
            with ThreadPoolExecutor(READERS) as pool:
                self._data[table] = list(pool.map(partial(_read, self._store), self._parts.get(table, ())))
        return self._data[table]


def _read(store: Store, part: Part) -> bytes:
    data = store.get(part.key)
    if data is None:
        raise StoreError(f"{store.uri(part.key)} is named by a commit but gone: restore it, or leave its run out")
    if sha256_hex(data) != part.sha256:
        raise StoreError(f"{store.uri(part.key)} is not the file its commit names (sha256 differs): restore it")
    return data


def _scan(sources: list[bytes], table: Table) -> pl.LazyFrame:
    """The table's parts as one lazy frame; columns that older parts lack are null."""
    schema = polars_schema(table)
    if not sources:
        return pl.LazyFrame(schema=schema)
    return pl.scan_parquet(sources, schema=schema, missing_columns="insert", extra_columns="raise")
