"""Makes one dataset and one page of what several leases measured: `merge.py SNAPSHOT NEWER...`.

SNAPSHOT and each NEWER are folders with the product tables, such as the store of a lease after `sweep report`. What a
newer one has of a step of a cell replaces what was there, whole: a bracket is never made of two leases. The store of a
lease is gone with its machine, so figures stay as they were built then: no interval is made anew, and a curve over K is
that of the newest lease that has one.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from shutil import copyfile
from tempfile import TemporaryDirectory

import polars as pl

from tasks.guards.published import judged_write_ups
from warehouse.build import ROW_ORDER
from warehouse.columns import Table
from warehouse.consolidate.raw import polars_schema
from warehouse.report.newest import CURVE
from warehouse.report.write import CONVENIENCE_KEY, write_report
from warehouse.snapshot import publish_rows
from warehouse.store import open_store
from warehouse.tables import PRODUCT_TABLES, RESULTS_CONSOLIDATED

MEASURED_ONCE = ("run_id", "cell_key", "step")
"""What a newer lease replaces; a table without steps is replaced by cells."""

KNOWN_AS = ("model", "precision", "technique", "k", "denoising_steps", "engine", "gpu", "step")
"""What a reader takes for the same cell and step, though its key changed with the version that planned it."""


def merged(table: Table, folders: Sequence[Path]) -> pl.DataFrame:
    """Rows of all folders, the newest of each step; in the dataset's order, as far as the table has its columns."""
    schema = polars_schema(table)
    replaced = CURVE if set(CURVE) <= set(schema) else [name for name in MEASURED_ONCE if name in schema]
    rows = schema.to_frame()
    for folder in folders:
        file = folder / f"{table.name}.parquet"
        if file.exists():  # an earlier version had fewer tables
            new = pl.scan_parquet(file, schema=schema, missing_columns="insert", extra_columns="ignore").collect()
            rows = pl.concat([rows.join(new, on=replaced, how="anti", nulls_equal=True), new])
    return rows.sort([name for name in ROW_ORDER if name in schema], maintain_order=True)


def newest(tables: Mapping[str, pl.DataFrame]) -> dict[str, pl.DataFrame]:
    """Without rows of a cell that a later run measured again under another key."""
    results = tables[RESULTS_CONSOLIDATED.name].sort("measured_at")
    latest = results.unique(KNOWN_AS, keep="last")
    kept = results.join(latest, on=(*KNOWN_AS, "run_id"), how="semi", nulls_equal=True)
    shared = {name: [each for each in MEASURED_ONCE if each in frame.columns] for name, frame in tables.items()}
    return {name: frame.join(kept, on=shared[name], how="semi") for name, frame in tables.items()}


def main(snapshot: Path, newer: Sequence[Path]) -> None:
    """Rewrite SNAPSHOT with what is newer: tables as Parquet, and the page. It may be an empty folder."""
    for folder in newer:
        if not (folder / f"{RESULTS_CONSOLIDATED.name}.parquet").exists():
            sys.exit(f"merge: {folder} has no dataset. Remedy: bin/sweep report --store {folder}")
    tables = newest({name: merged(table, [snapshot, *newer]) for name, table in PRODUCT_TABLES.items()})
    rows = {name: frame.to_dicts() for name, frame in tables.items()}
    runs = sorted(set(tables[RESULTS_CONSOLIDATED.name]["run_id"]))
    with TemporaryDirectory() as scratch:
        store = open_store(scratch)
        assert publish_rows(store, rows, runs, None) is not None, "nobody else publishes here"
        write_report(store, judged_write_ups())
        for name in (*(f"{table}.parquet" for table, frame in tables.items() if len(frame)), CONVENIENCE_KEY):
            copyfile(Path(scratch) / name, snapshot / name)
            print(snapshot / name, len(tables.get(name.removesuffix(".parquet"), ())) or "")


if __name__ == "__main__":
    main(Path(sys.argv[1]), [*map(Path, sys.argv[2:])])
