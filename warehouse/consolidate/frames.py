"""From committed parts to small frames: every part is read once, checked against its commit, and reduced by polars."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import polars as pl
from polars.exceptions import PolarsError

from warehouse.columns import ColumnType, Table
from warehouse.consolidate.inputs import READERS, CommittedStep
from warehouse.ledger import Part
from warehouse.parts import sha256_hex
from warehouse.store import Store, StoreError
from warehouse.tables import EVAL_ITEMS, PARITY_OUTPUTS, PROVENANCE, REQUESTS, VERDICTS, WINDOWS

STEP = ("run_id", "cell_key", "step")
"""The columns by which a raw row belongs to a committed step."""

Identity = tuple[str, str, str]
Rows = list[dict[str, Any]]

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
    """The table's polars schema."""
    return pl.Schema({column.name: POLARS_TYPES[column.type] for column in table.columns})


class Reduced(NamedTuple):
    """What consolidation needs of the raw rows of a batch, by committed step."""

    windows: dict[Identity, Rows]
    """All windows, in order of condition, mode and repeat."""
    streams: dict[Identity, Rows]
    """Per condition: medians of the streamed requests."""
    parity: dict[Identity, Rows]
    """All greedy outputs."""
    items: pl.DataFrame
    """One row per answered question: right by either extractor, truncated, blank."""
    verdicts: dict[Identity, Rows]
    provenance: dict[Identity, Rows]


def reduce_parts(store: Store, steps: Sequence[CommittedStep]) -> Reduced:
    """Read and reduce all parts that the steps' commits name.

    Raises:
        StoreError: a part is missing, is not what its commit says, or has columns that this version does not know.
    """
    data = _verified(store, [part for step in steps for part in step.commit.parts])
    windows = _scan(data, WINDOWS).sort(*STEP, "condition", "mode", "repeat")
    outputs = _scan(data, PARITY_OUTPUTS).select(*STEP, "prompt_id", "pass", "token_ids")
    return Reduced(
        windows=_by_step(_collect(windows, WINDOWS)),
        streams=_by_step(_collect(_stream_medians(_scan(data, REQUESTS)), REQUESTS)),
        parity=_by_step(_collect(outputs.sort(*STEP, "pass", "prompt_id"), PARITY_OUTPUTS)),
        items=_collect(_graded(_scan(data, EVAL_ITEMS)), EVAL_ITEMS),
        verdicts=_by_step(_collect(_scan(data, VERDICTS), VERDICTS)),
        provenance=_by_step(_collect(_scan(data, PROVENANCE).sort(*STEP, "attempt"), PROVENANCE)),
    )


def _verified(store: Store, parts: Sequence[Part]) -> dict[str, list[bytes]]:
    """Bytes of the parts by table, each compared with the hash that its commit recorded."""

    def read(part: Part) -> bytes:
        data = store.get(part.key)
        if data is None:
            raise StoreError(f"{store.uri(part.key)} is named by a commit but gone: restore it, or leave its run out")
        if sha256_hex(data) != part.sha256:
            raise StoreError(f"{store.uri(part.key)} is not the file its commit names (sha256 differs): restore it")
        return data

    by_table: dict[str, list[bytes]] = {}
    with ThreadPoolExecutor(READERS) as pool:
        for part, data in zip(parts, pool.map(read, parts), strict=True):
            by_table.setdefault(part.table, []).append(data)
    return by_table


def _scan(data: dict[str, list[bytes]], table: Table) -> pl.LazyFrame:
    """The table's parts as one lazy frame; columns that older parts lack are null."""
    sources = data.get(table.name, [])
    schema = polars_schema(table)
    if not sources:
        return pl.LazyFrame(schema=schema)
    return pl.scan_parquet(sources, schema=schema, missing_columns="insert", extra_columns="raise")


def _collect(frame: pl.LazyFrame, table: Table) -> pl.DataFrame:
    try:
        return frame.collect(engine="streaming")
    except PolarsError as error:
        raise StoreError(f"parts of table {table.name} can't be read (a newer specsweep's?): {error}") from error


def _stream_medians(requests: pl.LazyFrame) -> pl.LazyFrame:
    """Per step and condition: shape, and medians of TTFT and TPOT in ms (medians: one burst moves no figure)."""
    shape = ("context_tokens", "output_tokens", "concurrency")
    return (
        requests.filter(pl.col("mode") == "stream")
        .group_by(*STEP, "condition")
        .agg(
            *(pl.col(name).min() for name in shape),
            pl.col("repeat").n_unique().alias("repeats"),
            pl.col("ttft_ms", "tpot_ms").median(),
        )
        .sort(*STEP, "condition")
    )


def _graded(items: pl.LazyFrame) -> pl.LazyFrame:
    """Per item: right by last-letter, right by first-letter, truncated, blank; a missing letter is wrong, not null."""
    return items.select(
        *STEP,
        "item_id",
        pl.col("last_letter").eq_missing(pl.col("gold")).alias("right_last"),
        pl.col("first_letter").eq_missing(pl.col("gold")).alias("right_first"),
        (pl.col("finish_reason") == "length").fill_null(False).alias("truncated"),
        (pl.col("body").fill_null("").str.strip_chars() == "").alias("blank"),
    )


def _by_step(frame: pl.DataFrame) -> dict[Identity, Rows]:
    found: dict[Identity, Rows] = {}
    for row in frame.iter_rows(named=True):
        found.setdefault((row["run_id"], row["cell_key"], row["step"]), []).append(row)
    return found
