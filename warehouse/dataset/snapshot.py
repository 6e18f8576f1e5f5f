"""Snapshots: immutable builds of the dataset, made current by a manifest that is created last.

    snapshots/<version>/results_consolidated.parquet, .csv, pairs.parquet, attempts.parquet
    snapshots/manifests/<n>.json        created only if absent; the highest n is current

Copies of the current files at the root of the store are a convenience (one stable path to open); the manifest is the
truth.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence

import polars as pl
from pydantic import BaseModel, ConfigDict, ValidationError

from configs.checkout import git_head
from warehouse.dataset.build import consolidate
from warehouse.dataset.consolidate.raw import polars_schema
from warehouse.dataset.product import DICTIONARY_KEY, content_hash, data_dictionary, product_files, product_rows
from warehouse.dataset.tables import PRODUCT_TABLES, RESULTS_CONSOLIDATED
from warehouse.ledger.clock import SYSTEM
from warehouse.ledger.commits import run_ids as all_run_ids
from warehouse.ledger.parts import Row, sha256_hex
from warehouse.ledger.store import Store, StoreError
from warehouse.ledger.store.numbered import numbers
from warehouse.ledger.tables import SCHEMA_VERSION

MANIFESTS = "snapshots/manifests"
"""Outside the data folders, so that those hold nothing but tables."""

PUBLISH_TRIES = 8
"""Builds before giving up to publishers that are always faster; even two at a time are rare."""

VERSION_HEX_DIGITS = 16
"""Length of a version: 64 bits of sha256."""


class SnapshotFile(BaseModel):
    """One file of a snapshot. `rows` counts table rows, also of a CSV."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    key: str
    rows: int
    sha256: str


class Manifest(BaseModel):
    """What one snapshot is made of."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    number: int
    version: str
    schema_version: int
    content_sha256: str
    built_at: str
    run_ids: tuple[str, ...]
    git_sha: str | None
    files: tuple[SnapshotFile, ...]

    def file(self, name: str) -> SnapshotFile:
        """The file with that name, e.g. `pairs.parquet`.

        Raises:
            StoreError: the snapshot has no such file.
        """
        for file in self.files:
            if file.key.rsplit("/", 1)[1] == name:
                return file
        raise StoreError(f"snapshot {self.number} has no file {name!r}: publish again with this version")


def publish(store: Store, run_ids: Sequence[str] | None = None) -> Manifest:
    """Consolidate, store a snapshot and make it current; if nothing changed, the current one stays.

    Args:
        store: holds the runs, and gets the snapshot.
        run_ids: runs to include; None: all runs of the store.

    Raises:
        StoreError: something can't be read or written, or other publishers won every race.
    """
    for _ in range(PUBLISH_TRIES):
        # the number is taken before the ledger is read: anyone publishing meanwhile may have seen more, so build again
        before = current(store)
        chosen = tuple(sorted(all_run_ids(store) if run_ids is None else set(run_ids)))
        manifest = publish_rows(store, product_rows(consolidate(store, chosen)), chosen, before)
        if manifest is not None:
            return manifest
    raise StoreError(f"{store.url}: {PUBLISH_TRIES} builds were overtaken by other publishers: publish again")


def publish_rows(
    store: Store, rows: Mapping[str, Sequence[Row]], run_ids: Sequence[str], before: Manifest | None
) -> Manifest | None:
    """Make these rows the store's current snapshot; if they are what `before` has, that one stays.

    Args:
        store: gets the snapshot.
        rows: of every product table, by its name.
        run_ids: the runs that they are of.
        before: the manifest that was current when the rows were read; None: there was none.

    Returns:
        The manifest; None: another publisher was first.

    Raises:
        StoreError: something can't be read or written.
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
    """The manifest with the highest number; None: nothing was published yet.

    Raises:
        StoreError: it is damaged.
    """
    number = max(numbers(store.list(MANIFESTS), _manifest_key), default=0)
    data = store.get(_manifest_key(number)) if number else None
    # a listing may lag behind writes, so the manifests that follow are looked up by name
    while (later := store.get(_manifest_key(number + 1))) is not None:
        number, data = number + 1, later
    return None if data is None else _read(store, _manifest_key(number), data)


def read_current(store: Store, table: str = RESULTS_CONSOLIDATED.name) -> pl.DataFrame:
    """One table of the current snapshot: results_consolidated, pairs or attempts.

    Raises:
        StoreError: nothing was published yet, or the file is not what the manifest says.
    """
    manifest = current(store)
    if manifest is None:
        raise StoreError(f"{store.url} has no snapshot yet: run a sweep, or `sweep report`")
    return read_table(store, manifest, table)


def read_table(store: Store, manifest: Manifest, table: str) -> pl.DataFrame:
    """One table of any snapshot.

    Raises:
        StoreError: no such table, or the file is not what the manifest says.
    """
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
    """Bring the copies at the store's root, and the data dictionary, up to the manifest."""
    for file in manifest.files:
        copy = file.key.rsplit("/", 1)[1]
        there = store.get(copy)
        if there is None or sha256_hex(there) != file.sha256:
            store.put(copy, _verified(store, file))
    dictionary = data_dictionary().encode()
    if store.get(DICTIONARY_KEY) != dictionary:
        store.put(DICTIONARY_KEY, dictionary)
