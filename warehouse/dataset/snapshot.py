"""Snapshots: immutable builds of the dataset, made current by a manifest that is created last.

    snapshots/<version>/results_consolidated.parquet, .csv, pairs.parquet, attempts.parquet
    snapshots/manifests/<n>.json        created only if absent; the highest n is current

Copies of the current files at the root of the store, and the data dictionary there, are a convenience.
"""

from __future__ import annotations

import hashlib
import io
import json
from collections.abc import Mapping, Sequence
from typing import Any

import polars as pl
from pydantic import ValidationError

from configs.checkout import git_head
from warehouse.dataset.build import Consolidated, consolidate, raw_tables
from warehouse.dataset.consolidate.inputs import polars_schema
from warehouse.dataset.tables import PRODUCT_TABLES, RESULTS_CONSOLIDATED
from warehouse.ledger.clock import SYSTEM
from warehouse.ledger.commits import Record
from warehouse.ledger.runs import OddRun, tell_skipped
from warehouse.ledger.runs import run_ids as all_run_ids
from warehouse.ledger.store import Store, StoreError
from warehouse.ledger.store.protocol import numbers
from warehouse.ledger.tables import SCHEMA_VERSION, Row, Table, encode, sha256_hex

CSV_TABLES = (RESULTS_CONSOLIDATED.name,)  # tables that are also written as CSV
DICTIONARY_KEY = "DATA_DICTIONARY.md"  # where the data dictionary is kept in a store

HASHED_DIGITS = 9
"""Significant digits of a float that count as content: sums differ in the last bits from machine to machine."""


def product_rows(built: Consolidated) -> dict[str, list[Row]]:
    """Rows by the name of their product table."""
    others = built._asdict()
    return {RESULTS_CONSOLIDATED.name: [*others.pop("results")], **others}


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


MANIFESTS = "snapshots/manifests"  # outside the data folders, so that those hold nothing but tables
PUBLISH_TRIES = 8  # builds before giving up to publishers that are always faster; even two at a time are rare
VERSION_HEX_DIGITS = 16  # length of a version: 64 bits of sha256


class SnapshotFile(Record):
    """One file of a snapshot. `rows` counts table rows, also of a CSV."""

    key: str
    rows: int
    sha256: str


class Manifest(Record):
    """What one snapshot is made of."""

    number: int
    version: str
    schema_version: int
    content_sha256: str
    built_at: str
    run_ids: tuple[str, ...]
    git_sha: str | None
    files: tuple[SnapshotFile, ...]

    def file(self, name: str) -> SnapshotFile:
        """The file with that name, e.g. `pairs.parquet`. StoreError: there is none."""
        for file in self.files:
            if file.key.rsplit("/", 1)[1] == name:
                return file
        raise StoreError(f"snapshot {self.number} has no file {name!r}: publish again with this version")


def publish(store: Store, run_ids: Sequence[str] | None = None) -> Manifest:
    """Consolidate, store a snapshot and make it current; if nothing changed, the current one stays.

    None means all runs of the store but those that this version can't read, which are named on stderr.
    StoreError: it can't be read or written, none of its runs can, or other publishers won every race.
    """
    skipped: dict[str, OddRun] = {}
    for _ in range(PUBLISH_TRIES):
        # the number is taken before the ledger is read: anyone publishing meanwhile may have seen more, so build again
        before = current(store)
        if run_ids is None:
            built, chosen = _of_all(store, skipped)
        else:
            chosen = sorted(set(run_ids))
            built = consolidate(store, chosen)
        manifest = publish_rows(store, product_rows(built), chosen, before)
        if manifest is not None:
            for odd in skipped.values():
                tell_skipped(odd)
            return manifest
    raise StoreError(f"{store.url}: {PUBLISH_TRIES} builds were overtaken by other publishers: publish again")


def _of_all(store: Store, skipped: dict[str, OddRun]) -> tuple[Consolidated, list[str]]:
    """What all runs of a store say that this version can read, and their names; the others go into `skipped`."""
    listed = all_run_ids(store)
    while (left := [run_id for run_id in listed if run_id not in skipped]) or not skipped:
        try:
            built = consolidate(store, left, lambda odd: skipped.update({odd.run_id: odd}))
        except OddRun as odd:  # its parts say so, which are read last
            skipped[odd.run_id] = odd
            continue
        if (chosen := [run_id for run_id in left if run_id not in skipped]) or not skipped:
            return built, chosen
    raise next(iter(skipped.values()))  # the dataset would be replaced by an empty one


def publish_rows(
    store: Store, rows: Mapping[str, Sequence[Row]], run_ids: Sequence[str], before: Manifest | None
) -> Manifest | None:
    """Make these rows, by product table, the current snapshot; if they are what `before` has, that one stays.

    `before` was current when they were read. None: another publisher was first.
    """
    content = content_hash(rows)
    if before is not None and (before.content_sha256, before.schema_version) == (content, SCHEMA_VERSION):
        _refresh_copies(store, before)
        return before
    files = product_files(rows)
    version = _version(files)
    stored = tuple(
        _store_file(store, f"snapshots/{version}/{name}", data, len(rows[name.rsplit(".", 1)[0]]))
        for name, data in files.items()
    )
    manifest = Manifest(
        number=(before.number if before else 0) + 1,
        version=version,
        schema_version=SCHEMA_VERSION,
        content_sha256=content,
        built_at=SYSTEM.now_iso(),
        run_ids=tuple(run_ids),
        git_sha=git_head(),
        files=stored,
    )
    if not store.put_new(_manifest_key(manifest.number), manifest.model_dump_json(indent=1).encode()):
        return None
    _refresh_copies(store, manifest)
    return manifest


def current(store: Store) -> Manifest | None:
    """The manifest with the highest number; None: nothing was published yet. StoreError: it is damaged."""
    number = max(numbers(store.list(MANIFESTS), _manifest_key), default=0)
    data = store.get(_manifest_key(number)) if number else None
    # a listing may lag behind writes, so the manifests that follow are looked up by name
    while (later := store.get(_manifest_key(number + 1))) is not None:
        number, data = number + 1, later
    return None if data is None else _read(store, _manifest_key(number), data)


def read_current(store: Store, table: str = RESULTS_CONSOLIDATED.name) -> pl.DataFrame:
    """One table of the current snapshot, e.g. `pairs`. StoreError: nothing was published, or it was changed since."""
    manifest = current(store)
    if manifest is None:
        raise StoreError(f"{store.url} has no snapshot yet: run a sweep, or `sweep report`")
    return read_table(store, manifest, table)


def read_table(store: Store, manifest: Manifest, table: str) -> pl.DataFrame:
    """One table of any snapshot. StoreError: there is none, or its file is not what the manifest says."""
    if table not in PRODUCT_TABLES:
        raise StoreError(f"no table {table!r}: use one of {', '.join(PRODUCT_TABLES)}")
    data = _verified(store, manifest.file(f"{table}.parquet"))
    schema = polars_schema(PRODUCT_TABLES[table])
    # columns that an older snapshot lacks are null; columns of a newer one that this version can't explain are left out
    return pl.scan_parquet(data, schema=schema, missing_columns="insert", extra_columns="ignore").collect()


def _read(store: Store, key: str, data: bytes) -> Manifest:
    try:
        return Manifest.model_validate_json(data)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        wrong = ": ".join(filter(None, (".".join(map(str, first["loc"])), first["msg"])))
        remedy = "restore it, or remove it and run `sweep report` with the newest version that has published here"
        raise StoreError(f"{store.uri(key)} is no manifest ({wrong}): {remedy}") from error


def _verified(store: Store, file: SnapshotFile) -> bytes:
    data = store.get(file.key)
    if data is None or sha256_hex(data) != file.sha256:
        raise StoreError(f"{store.uri(file.key)} is missing or not what its manifest says: restore it")
    return data


def _store_file(store: Store, key: str, data: bytes, rows: int) -> SnapshotFile:
    if not store.put_new(key, data) and store.get(key) != data:
        raise StoreError(f"{store.uri(key)} exists with other bytes, though its hash is its name: remove it")
    return SnapshotFile(key=key, rows=rows, sha256=sha256_hex(data))


def _version(files: Mapping[str, bytes]) -> str:
    hasher = hashlib.sha256()
    for name in sorted(files):
        hasher.update(f"{name} {sha256_hex(files[name])}\n".encode())
    return hasher.hexdigest()[:VERSION_HEX_DIGITS]


def _manifest_key(number: int) -> str:
    return f"{MANIFESTS}/{number:06d}.json"


def _refresh_copies(store: Store, manifest: Manifest) -> None:
    for file in manifest.files:
        copy = file.key.rsplit("/", 1)[1]
        there = store.get(copy)
        if there is None or sha256_hex(there) != file.sha256:
            store.put(copy, _verified(store, file))
    dictionary = data_dictionary().encode()
    if store.get(DICTIONARY_KEY) != dictionary:
        store.put(DICTIONARY_KEY, dictionary)
