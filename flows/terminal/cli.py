"""The `sweep` command. Prefect is imported only by the processes that run flows, so that every command answers fast."""

from __future__ import annotations

import errno
import json
import os
import signal
import stat
import sys
import time
from contextlib import suppress
from pathlib import Path
from types import FrameType
from typing import Annotated, Any, NoReturn

import typer
from rich.console import Console
from rich.markup import escape

from configs.checkout import git_head, version
from configs.errors import SpecsweepError, leave
from configs.expand import default_run_id
from flows.plans import store_url
from flows.terminal.lab_commands import lab_app
from warehouse.ledger.commits import Ledger
from warehouse.ledger.runs import OddRun, run_ids, tell_skipped
from warehouse.ledger.store import Store, StoreError, open_store

app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    help="Which decoding technique should I run, how fast is it really, and does it cost me accuracy?",
    epilog="Examples: [bold]sweep demo[/]   [bold]sweep plan full[/]   [bold]sweep run my/sweep.yaml[/]   "
    "[bold]sweep report[/]   [bold]sweep doctor --store s3://bucket/prefix[/]",
)

app.add_typer(lab_app, name="cloud-lab")

SweepName = Annotated[str, typer.Argument(help="a sweep of configs/sweeps/, or a path to your own YAML")]
StoreOption = Annotated[
    str | None,
    typer.Option(
        "--store", help=r"folder, s3://bucket/prefix or gs://bucket/prefix  \[default: SPECSWEEP_STORE, else results/]"
    ),
]
RunOption = Annotated[
    str | None, typer.Option("--run-id", help=r"which run  \[default: made from the plan; the same plan continues it]")
]
JsonOption = Annotated[bool, typer.Option("--json", help="print one JSON document instead of tables")]
PIPE_COLUMNS = 130  # width of the output where there is no terminal to ask
NOT_WRITABLE = (errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOTDIR, errno.EEXIST, errno.ENOSPC, errno.EDQUOT)
STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
"""What ends a command. Ctrl-C sends the second, a terminal that is closed the third."""


class Interrupted(BaseException):
    """Asked to stop by a signal. Not KeyboardInterrupt: the command line library swallows that one."""


def _print_version(wanted: bool) -> None:
    if wanted:
        commit = git_head()
        print(f"specsweep {version()}" + (f" (commit {commit[:7]})" if commit else ""))
        raise typer.Exit


@app.callback()
def sweep(
    context: typer.Context,
    show_version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="show version and commit")
    ] = False,
) -> None:
    """Handle what comes before the command's name."""
    context.call_on_close(sys.stdout.flush)  # at its exit Python would tell in lines of its own what can't be written


@app.command(epilog="Examples: sweep plan full    sweep plan my/sweep.yaml --json")
def plan(name: SweepName, store: StoreOption = None, run_id: RunOption = None, as_json: JsonOption = False) -> None:
    """Show the matrix of a sweep, what is already measured, hours, dollars and budgets.

    Needs no network, unless the store is a bucket.
    """
    from configs.load import library_of_named
    from flows.forecast.budget import Purse
    from flows.plans import make_plan
    from flows.renting.site import expected
    from flows.terminal.forecast_table import render
    from flows.terminal.rehearsal_table import document, summary
    from tasks.rehearsal.rehearse import parts_of, remembered

    planned = make_plan(name)
    opened = open_store(store_url(store))
    ledger = Ledger(opened, default_run_id(planned) if run_id is None else run_id)
    is_there = "://" in opened.url or Path(opened.url).exists()
    left, cloud = expected(planned, ledger if is_there else None), planned.cloud
    budgets = [] if cloud is None else Purse(opened, ledger.run_id, cloud.budget, time.time).fits(left)
    rehearsed = remembered(parts_of(planned), library_of_named(name))
    if as_json:
        limits = [fit._asdict() | {"fits": fit.fits} for fit in budgets]
        print_json(left.model_dump(mode="json") | {"budgets": limits} | document(rehearsed))
    else:
        terminal().print(render(left, budgets))
        terminal().print(summary(rehearsed, name), soft_wrap=True, highlight=False, markup=False)


@app.command(epilog="Examples: sweep rehearse full    sweep rehearse my/sweep.yaml --json")
def rehearse(name: SweepName, as_json: JsonOption = False) -> None:
    """Try every cell's command against the pinned vLLM's own configuration code. Needs no GPU and no weights.

    Exit code 1 if a cell would not start, or is not what its label says. What was found out is remembered.
    """
    from configs.load import library_of_named
    from flows.plans import make_plan
    from flows.terminal.rehearsal_table import document, render
    from flows.terminal.run import told
    from tasks.rehearsal.rehearse import parts_of, rehearse

    parts = parts_of(make_plan(name))
    with told(Console(stderr=True), "checking the cells against the engine") as tell:
        found = rehearse(parts, library_of_named(name), tell)
    if as_json:
        print_json(document(found))
    else:
        terminal().print(render(found))
    raise typer.Exit(1 if any(each.refusals for each in found) else 0)


@app.command(epilog="Examples: sweep demo    sweep demo --store /tmp/mine    sweep demo --sweep tiny-quick")
def demo(
    store: StoreOption = None,
    run_id: RunOption = None,
    sweep: Annotated[
        str, typer.Option("--sweep", help="which sweep: a shipped one, or a path to your own YAML")
    ] = "demo",
) -> None:
    """Measure the demo on this machine through a Prefect server of our own. Run it again to continue.

    Exit code 4 as of `sweep run`.
    """
    from flows.terminal.run import run_sweep, through_prefect

    raise typer.Exit(run_sweep(sweep, store_url(store), run_id, terminal(), through_prefect))


@app.command(epilog="Examples: sweep run demo    sweep run my/sweep.yaml --run-id tuesday --store s3://bucket/prefix")
def run(name: SweepName, store: StoreOption = None, run_id: RunOption = None) -> None:
    """Measure a sweep without a Prefect server of your own (uses Prefect's ephemeral one). Run it again to continue.

    Exit code 4 if all is measured but requests failed or came back short: the last line names cells and conditions.
    """
    from flows.terminal.run import run_here, run_sweep

    raise typer.Exit(run_sweep(name, store_url(store), run_id, terminal(), run_here))


@app.command(epilog="Examples: sweep status    sweep status --run-id demo-1f3a --json")
def status(
    store: StoreOption = None,
    run_id: Annotated[str | None, typer.Option("--run-id", help=r"which run  \[default: all]")] = None,
    as_json: JsonOption = False,
) -> None:
    """Show where runs stand: cells x steps, who measures what now, attempts."""
    from flows.terminal.progress import ProgressReader, progress_table

    opened = open_store(store_url(store))
    chosen = _runs_in(opened) if run_id is None else [run_id]
    documents = []
    for name in chosen:
        try:
            ledger = Ledger(opened, name)
            progress = ProgressReader(ledger, ledger.plan()).read()
        except OddRun as odd:
            if run_id is not None:
                raise
            tell_skipped(odd)
            continue
        documents.append({
            "run_id": name, "measured": progress.measured, "total": progress.total,
            "spent_usd": progress.spent.usd if progress.spent else None,
            "cells": [cell.document() for cell in progress.cells],
        })  # fmt: skip
        if not as_json:
            terminal().print(progress_table(progress))
            terminal().print(progress.measured_of)
    if as_json:
        print_json({"store": opened.url, "runs": documents})


@app.command(epilog="Examples: sweep report    sweep report --store s3://bucket/prefix --json")
def report(store: StoreOption = None, as_json: JsonOption = False) -> None:
    """Consolidate everything committed, write the report page, and say where both are."""
    from warehouse.dataset.snapshot import publish
    from warehouse.report.page import write_report

    opened = open_store(store_url(store))
    _runs_in(opened)  # a dataset without its runs would be replaced by an empty one
    manifest = publish(opened)
    page = write_report(opened)
    if as_json:
        print_json({"report": page, "snapshot": manifest.model_dump(mode="json")})
        return
    terminal().print(f"dataset: {opened.uri('results_consolidated.parquet')}", soft_wrap=True, highlight=False)
    terminal().print(f"report:  {page}", soft_wrap=True, highlight=False)


@app.command(epilog="Examples: sweep published    sweep published mtp-gb10    sweep published --json")
def published(
    name: Annotated[str | None, typer.Argument(help=r"one write-up of docs/sources.md  \[default: all]")] = None,
    as_json: JsonOption = False,
) -> None:
    """Show what others measured and published, and what in it contradicts itself. Needs no store and no network."""
    from flows.results import published_document, published_tables
    from warehouse.report.published.read import load_write_up, published_rows

    only = None if name is None else load_write_up(name)
    judged = [each for each in published_rows() if only in (None, each.write_up)]
    if as_json:
        print_json(published_document(judged))
    else:
        terminal().print(published_tables(judged), highlight=False)


@app.command(epilog="Examples: sweep doctor    sweep doctor full    sweep doctor --store s3://bucket/prefix --json")
def doctor(
    name: Annotated[str | None, typer.Argument(metavar="[SWEEP]", help="a sweep: whether it can run")] = None,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Check this machine, and prove that a store honours conditional writes, before either is trusted.

    With a sweep: all that this one needs, and nothing else. Store, clouds, quota, offers, image, keys that travel,
    hub, datasets, budget, and each cell against the pinned engine. Nothing is rented.

    Exit code 1 if a line says problem. What the next command makes by itself, or only some sweeps need, is a remark.
    """
    if name is None:
        from flows.terminal.doctor import examine

        checks = examine(store_url(store))
    else:
        from flows.terminal.sweep_checks import examine_sweep

        checks = examine_sweep(store_url(store), name)
    checks = [check._replace(remedy="") if check.ok and not check.remark else check for check in checks]
    if as_json:
        print_json({"checks": [check._asdict() for check in checks], "ok": all(check.ok for check in checks)})
    for check in [] if as_json else checks:
        mark = "[yellow]remark [/]" if check.remark else "[green]ok     [/]" if check.ok else "[red]problem[/]"
        remedy = f"  remedy: {check.remedy}" if check.remedy else ""
        text = escape(f"{check.name}: {check.detail}{remedy}")
        terminal().print(f"{mark} {text}", soft_wrap=True, highlight=False)
    raise typer.Exit(0 if all(check.ok for check in checks) else 1)


@app.command(epilog="Examples: sweep reap --dry-run    sweep reap --store s3://bucket/prefix --json")
def reap(
    store: StoreOption = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="only say what would go down")] = False,
    as_json: JsonOption = False,
) -> None:
    """Take down every cluster of ours that nobody owns, also those that SkyPilot has forgotten."""
    from flows.clusters.clouds import accounts
    from flows.clusters.skypilot import api as sky_api
    from flows.clusters.skypilot import home as sky_home
    from flows.reaper.reap import reap_store

    opened = open_store(store_url(store))
    sky_home.enter()
    found = reap_store(opened, sky_api, accounts(), time.time(), dry_run=dry_run)
    if as_json:
        print_json(found.document())
    else:
        if found.reaped:
            terminal().print(found.table())
        for line in found.lines():
            terminal().print(line, soft_wrap=True, highlight=False, markup=False)
    raise typer.Exit(0 if found.ok else 1)


@app.command(epilog="Examples: sweep reproduce 3f2a    sweep reproduce 3f2a91c04b7d8e65 --run-id tuesday --json")
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


@app.command(epilog="Examples: sweep regrade tuesday --dry-run    sweep regrade tuesday --cell 3f2a --json")
def regrade(
    run_id: Annotated[str, typer.Argument(metavar="RUN", help="which run", show_default=False)],
    store: StoreOption = None,
    cell: Annotated[str | None, typer.Option("--cell", help="only this cell key, or the beginning of one")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="only show what would change")] = False,
    as_json: JsonOption = False,
) -> None:
    """Grade a run's evaluations again, from what the engine answered then, and show what changed. Needs no engine."""
    from flows.terminal import regrade as again

    graded = again.regrade(Ledger(open_store(store_url(store)), run_id), cell, dry_run=dry_run)
    if as_json:
        print_json(again.document(run_id, graded, dry_run=dry_run))
    else:
        terminal().print(again.render(graded, dry_run=dry_run))


def terminal() -> Console:
    """The terminal; a pipe or a file gets lines wide enough for the tables."""
    console = Console()
    return console if console.is_terminal else Console(width=PIPE_COLUMNS)


def print_json(document: dict[str, Any]) -> None:
    """Print what `--json` promises: one document, on one line."""
    print(json.dumps(document, ensure_ascii=False))


def main() -> None:
    """Run the command; an error that a user can fix is one line on stderr."""
    try:
        # SIGTERM must pass through every `finally`, and a shell's background job starts with SIGINT ignored
        for number in STOP_SIGNALS:
            if number != signal.SIGHUP or signal.getsignal(number) != signal.SIG_IGN:  # `nohup`: outlive a terminal
                signal.signal(number, _interrupt)
        app(prog_name="sweep")
    except SpecsweepError as error:
        sys.exit(leave("sweep", error))
    except OSError as error:
        if (unwritable := _unwritable(error)) is None:
            raise
        sys.exit(leave("sweep", unwritable))
    except Interrupted as interruption:
        _say_last("sweep: stopped; what was measured is kept, run the same command again to go on")
        sys.exit(128 + int(interruption.args[0]))


def _unwritable(error: OSError) -> SpecsweepError | None:
    """What to do about an output, cache or state folder that can't be written to; None: the error is another one."""
    from tasks.engine.machine import STATE_VARIABLE, state_dir
    from tasks.host.environment_spec import user_cache

    path = Path(str(error.filename or "/"))
    for folder, variable in ((state_dir(), STATE_VARIABLE), (user_cache(), "XDG_CACHE_HOME")):
        if error.errno in NOT_WRITABLE and path.is_relative_to(folder):
            remedy = f"make it writable, free space there, or set {variable} to another folder"
            return SpecsweepError(f"{path} can't be written to ({error.strerror}): {remedy}")
    if error.errno in NOT_WRITABLE and error.filename is None:  # in the middle of something: the system names no file
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # what it has kept, Python would try again at its exit
        return SpecsweepError(f"the output, or a file, can't be written to ({error.strerror}): free space there")
    return None


def _interrupt(number: int, frame: FrameType | None) -> NoReturn:
    for each in STOP_SIGNALS:  # a second Ctrl-C must not cut the cleanup short
        signal.signal(each, signal.SIG_IGN)
    if number == signal.SIGHUP:
        _leave_terminal()
    _say_last("sweep: stopping")
    raise Interrupted(number)


def _say_last(text: str) -> None:
    """Say something on stderr, if anybody still reads it: the end of a pipe there may have been stopped, too."""
    with suppress(OSError):
        print(text, file=sys.stderr, flush=True)


def _leave_terminal() -> None:
    """Write to nowhere what would go to a terminal: one that is closed fails, and that would cut the cleanup short."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for descriptor in (1, 2):
        if stat.S_ISCHR(os.fstat(descriptor).st_mode):
            os.dup2(nowhere, descriptor)


def _runs_in(store: Store) -> list[str]:
    known = run_ids(store)
    if not known:
        raise StoreError(f"no run in {store.url} yet: `sweep run demo` makes one")
    return known
