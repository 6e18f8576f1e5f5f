"""Commands that show, publish or grade again what a store has; none of them measures."""

from __future__ import annotations

from typing import Annotated

import typer

from flows.plans import store_url
from flows.terminal.options import JsonOption, StoreOption, print_json, terminal
from warehouse.ledger import Ledger, run_ids
from warehouse.store import Store, StoreError, open_store


def status(
    store: StoreOption = None,
    run_id: Annotated[str | None, typer.Option("--run-id", help=r"which run  \[default: all]")] = None,
    as_json: JsonOption = False,
) -> None:
    """Show where runs stand: cells x steps, who measures what now, attempts."""
    from flows.terminal.live_view import progress_table
    from flows.terminal.progress import ProgressReader

    opened = open_store(store_url(store))
    chosen = [run_id] if run_id else _runs_in(opened)
    documents = []
    for name in chosen:
        ledger = Ledger(opened, name)
        progress = ProgressReader(ledger, ledger.plan()).read()
        documents.append({
            "run_id": name, "measured": progress.measured, "total": progress.total,
            "spent_usd": progress.spent.usd if progress.spent else None,
            "cells": [cell.document() for cell in progress.cells],
        })  # fmt: skip
        if not as_json:
            terminal().print(progress_table(progress))
            terminal().print(f"{progress.measured} of {progress.total} steps measured")
    if as_json:
        print_json({"store": opened.url, "runs": documents})


def report(store: StoreOption = None, as_json: JsonOption = False) -> None:
    """Consolidate everything committed, write the report page, and say where both are."""
    from warehouse.report.write import write_report
    from warehouse.snapshot import publish

    opened = open_store(store_url(store))
    _runs_in(opened)  # a dataset without its runs would be replaced by an empty one
    manifest = publish(opened)
    page = write_report(opened)
    if as_json:
        print_json({"report": page, "snapshot": manifest.model_dump(mode="json")})
        return
    terminal().print(f"dataset: {opened.uri('results_consolidated.parquet')}", soft_wrap=True, highlight=False)
    terminal().print(f"report:  {page}", soft_wrap=True, highlight=False)


def published(
    name: Annotated[str | None, typer.Argument(help=r"one write-up of docs/sources.md  \[default: all]")] = None,
    as_json: JsonOption = False,
) -> None:
    """Show what others measured and published, and what in it contradicts itself. Needs no store and no network."""
    from flows.terminal.tables.published_table import document, render
    from warehouse.published.read import load_write_up, published_rows

    only = None if name is None else load_write_up(name)
    rows = [each for each in published_rows() if only in (None, each.write_up)]
    if as_json:
        print_json(document(rows))
    else:
        terminal().print(render(rows), highlight=False)


def reproduce(
    cell: Annotated[str, typer.Argument(help="a cell key of the dataset, or the beginning of one")],
    store: StoreOption = None,
    run_id: Annotated[
        str | None, typer.Option("--run-id", help=r"which run  \[default: the newest that measured the cell]")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Print the exact engine command and client call of a recorded row."""
    from flows.terminal.reproduce import reproduce as find

    found = find(open_store(store_url(store)), cell, run_id)
    if as_json:
        print_json(found)
        return
    print(f"# {found['label']}, cell {found['cell_key']}, run {found['run_id']}, engine {found['engine_version']}")
    for name, value in found["engine_environment"].items():
        print(f"export {name}={value}")
    print(found["engine_command"])
    if found["client_call"]:
        print(f"\n# the first timed request\n{found['client_call']}")


def regrade(
    run_id: Annotated[str, typer.Argument(metavar="RUN", help="which run", show_default=False)],
    store: StoreOption = None,
    cell: Annotated[str | None, typer.Option("--cell", help="only this cell key, or the beginning of one")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="only show what would change")] = False,
    as_json: JsonOption = False,
) -> None:
    """Grade a run's evaluations again, from what the engine answered then, and show what changed. Needs no engine."""
    from flows.terminal.regrade import document, render
    from flows.terminal.regrade import regrade as grade_again

    graded = grade_again(Ledger(open_store(store_url(store)), run_id), cell, dry_run=dry_run)
    if as_json:
        print_json(document(run_id, graded, dry_run=dry_run))
    else:
        terminal().print(render(graded, dry_run=dry_run))


def _runs_in(store: Store) -> list[str]:
    """The runs of a store.

    Raises:
        StoreError: there is none.
    """
    known = run_ids(store)
    if not known:
        raise StoreError(f"no run in {store.url} yet: `sweep run demo` makes one")
    return known
