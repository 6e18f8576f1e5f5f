"""From a store's current snapshot to the page beside its dataset."""

from __future__ import annotations

import polars as pl

from warehouse.dataset.snapshot import Manifest, current, read_table
from warehouse.dataset.tables import PRODUCT_TABLES
from warehouse.ledger.store import Store, StoreError
from warehouse.report.page import render_report

CONVENIENCE_KEY = "report.html"
"""The stable name of the newest report."""


def current_tables(store: Store) -> tuple[Manifest, dict[str, pl.DataFrame]]:
    """The current snapshot, and the tables that it has.

    Raises:
        StoreError: nothing was published yet.
    """
    manifest = current(store)
    if manifest is None:
        raise StoreError(f"{store.url} has no snapshot yet: publish before writing a report")
    return manifest, {name: read_table(store, manifest, name) for name in PRODUCT_TABLES}


def write_report(store: Store) -> str:
    """Render the current snapshot's report, and return where it can be opened.

    Args:
        store: that has the snapshot.

    Raises:
        StoreError: nothing was published yet, or the store can't be written.
    """
    manifest, tables = current_tables(store)
    page = render_report(tables, manifest).encode()
    store.put_new(f"reports/{manifest.version}.html", page)
    store.put(CONVENIENCE_KEY, page)
    return store.uri(CONVENIENCE_KEY)
