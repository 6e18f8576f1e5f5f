"""The `sweep` command. Prefect is imported only by the processes that run flows, so that every command answers fast."""

from __future__ import annotations

import signal
import sys
from pathlib import Path
from types import FrameType
from typing import Annotated, NoReturn

import typer
from rich.markup import escape

from configs.checkout import git_head, version
from configs.errors import SpecsweepError, leave
from configs.expand import default_run_id
from flows.plans import store_url
from flows.terminal import recorded
from flows.terminal.lab_commands import lab_app
from flows.terminal.options import JsonOption, RunOption, StoreOption, SweepName, print_json, terminal
from warehouse.ledger import Ledger
from warehouse.store import Store, open_store

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

STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT)
"""What ends a command; Ctrl-C sends the second."""


class Interrupted(BaseException):
    """Asked to stop by a signal. Not KeyboardInterrupt: the command line library swallows that one."""


def _print_version(wanted: bool) -> None:
    if wanted:
        commit = git_head()
        print(f"specsweep {version()}" + (f" (commit {commit[:7]})" if commit else ""))
        raise typer.Exit


@app.callback()
def sweep(
    show_version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="show version and commit")
    ] = False,
) -> None:
    """Handle what comes before the command's name."""
    del show_version  # its callback has done everything


@app.command(epilog="Examples: sweep plan full    sweep plan my/sweep.yaml --json")
def plan(name: SweepName, store: StoreOption = None, run_id: RunOption = None, as_json: JsonOption = False) -> None:
    """Show the matrix of a sweep, what is already measured, hours, dollars and budgets. Needs no network."""
    import time

    from flows.forecast.budget import Purse
    from flows.plans import make_plan
    from flows.renting.expected import expected
    from flows.terminal.tables.forecast_table import render

    planned = make_plan(name)
    opened = open_store(store_url(store))
    ledger = Ledger(opened, run_id or default_run_id(planned))
    left = expected(planned, ledger if _is_there(opened) else None)
    cloud = planned.cloud
    budgets = [] if cloud is None else Purse(opened, ledger.run_id, cloud.budget, time.time).fits(left)
    if as_json:
        limits = [fit._asdict() | {"fits": fit.fits} for fit in budgets]
        print_json(left.model_dump(mode="json") | {"budgets": limits})
    else:
        terminal().print(render(left, budgets))


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
    from flows.terminal.demo import demo as run_demo

    raise typer.Exit(run_demo(sweep, store_url(store), run_id, terminal()))


@app.command(epilog="Examples: sweep run demo    sweep run my/sweep.yaml --run-id tuesday --store s3://bucket/prefix")
def run(name: SweepName, store: StoreOption = None, run_id: RunOption = None) -> None:
    """Measure a sweep without a Prefect server of your own (uses Prefect's ephemeral one). Run it again to continue.

    Exit code 4 if all is measured but requests failed or came back short: the last line names cells and conditions.
    """
    import time

    from flows.terminal.prepare import prepare
    from flows.terminal.run import code_of_rows, open_run, run_here, show_if_measured, show_results

    started, console = time.monotonic(), terminal()
    ledger, planned = open_run(name, store_url(store), run_id)
    if show_if_measured(ledger, planned, console):
        raise typer.Exit(code_of_rows(ledger, console))
    prepare(planned, console)
    code = run_here(ledger, planned, name, console)
    if code == 0:
        show_results(ledger, console, f"took {time.monotonic() - started:.0f} s")
        code = code_of_rows(ledger, console)
    raise typer.Exit(code)


app.command(epilog="Examples: sweep status    sweep status --run-id demo-1f3a --json")(recorded.status)
app.command(epilog="Examples: sweep report    sweep report --store s3://bucket/prefix --json")(recorded.report)
app.command(epilog="Examples: sweep published    sweep published mtp-gb10    sweep published --json")(
    recorded.published
)


@app.command(epilog="Examples: sweep doctor    sweep doctor --store s3://bucket/prefix --json")
def doctor(store: StoreOption = None, as_json: JsonOption = False) -> None:
    """Check this machine, and prove that a store honours conditional writes, before either is trusted.

    Exit code 1 if a line says problem. What the next command makes by itself, or only some sweeps need, is a remark.
    """
    from flows.terminal.doctor import examine

    checks = examine(store_url(store))
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
    import time

    from flows.clusters.clouds.accounts import accounts
    from flows.clusters.skypilot import api as sky_api
    from flows.clusters.skypilot import home as sky_home
    from flows.reaper import reap_store

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


app.command(epilog="Examples: sweep reproduce 3f2a    sweep reproduce 3f2a91c04b7d8e65 --run-id tuesday --json")(
    recorded.reproduce
)
app.command(epilog="Examples: sweep regrade tuesday --dry-run    sweep regrade tuesday --cell 3f2a --json")(
    recorded.regrade
)


def main() -> None:
    """Run the command; an error that a user can fix is one line on stderr."""
    # SIGTERM must pass through every `finally`, and a shell's background job starts with SIGINT ignored
    for number in STOP_SIGNALS:
        signal.signal(number, _interrupt)
    try:
        app(prog_name="sweep")
    except SpecsweepError as error:
        sys.exit(leave("sweep", error))
    except Interrupted as interruption:
        print("sweep: stopped; what was measured is kept, run the same command again to go on", file=sys.stderr)
        sys.exit(128 + int(interruption.args[0]))


def _interrupt(number: int, frame: FrameType | None) -> NoReturn:
    del frame
    for each in STOP_SIGNALS:  # a second Ctrl-C must not cut the cleanup short
        signal.signal(each, signal.SIG_IGN)
    print("sweep: stopping", file=sys.stderr)
    raise Interrupted(number)


def _is_there(store: Store) -> bool:
    return "://" in store.url or Path(store.url).exists()


if __name__ == "__main__":
    main()
