"""Run a sweep from the terminal: open the run, start the flow beside the view, show the results."""

from __future__ import annotations

import subprocess
from contextlib import suppress

from rich.console import Console

from configs.expand import default_run_id
from configs.load import named_anywhere
from configs.schema import Plan
from flows.own_machine import require_machine
from flows.plans import make_plan, record_run
from flows.preflight import require_datasets
from flows.results import answers_of, recommendations_table, results_table, unanswered_rows
from flows.settling import require_budget
from flows.terminal.flow_process import FlowProcess
from flows.terminal.live_view import RunWatcher
from flows.terminal.prefect_server.session import default_home
from flows.terminal.progress import ProgressReader
from warehouse.dataset.snapshot import publish
from warehouse.ledger.commits import Ledger
from warehouse.ledger.store import open_store
from warehouse.ledger.store.proof import require_create_only
from warehouse.report.page import write_report

CLOUD_STOP_S = 300.0
"""How long a stopped flow may take to flush its nodes and take its clusters down; if killed, it leaves them up."""

NEXT = """next:    bin/sweep run demo-all    more techniques and loads of the same tiny models (half an hour)
         bin/sweep run own-gpu     AR against n-gram drafts on a card of this machine
         bin/sweep plan full       real models on spot H100s: cells, hours and dollars"""
"""After a sweep of the tiny family: what else there is."""

UNANSWERED_CODE = 4
"""Exit code of `sweep run` where all was measured and requests failed or came back short: README and --help say so."""


def open_run(name: str, store_url: str, run_id: str | None) -> tuple[Ledger, Plan]:
    """The run that a sweep starts or continues; its plan is recorded.

    Raises:
        ConfigError: the sweep is wrong.
        StoreError: the store can't be trusted, or the run exists with another plan.
        BudgetExceeded: what is left of it would cost more than it may.
        DatasetUnreachable: an evaluation's items could not be read where it runs.
        OtherMachine, EngineUnavailable, ContainerUnavailable: this machine can't measure what it would have to.
    """
    plan = make_plan(name)
    store = open_store(store_url)
    require_create_only(store)
    ledger = Ledger(store, run_id or default_run_id(plan))
    require_datasets(plan, ledger)
    require_machine(plan, ledger)
    record_run(ledger, plan)
    require_budget(ledger, plan)
    return ledger, plan


def run_here(ledger: Ledger, plan: Plan, name: str, console: Console) -> int:
    """Run the sweep flow with Prefect's ephemeral server and show it; returns the flow's exit code."""
    started = FlowProcess(default_home() / "ephemeral", [named_anywhere(name), ledger.store.url, ledger.run_id])
    flow, log_path = started.process, started.log_path
    try:
        RunWatcher(ledger, plan, console).watch(lambda: flow.poll() is not None)
    finally:
        if plan.cloud is not None:  # Prefect's server ends after the flow, which would otherwise wait for it
            flow.terminate()
            with suppress(subprocess.TimeoutExpired):
                flow.wait(CLOUD_STOP_S)
        started.end(asks_first=plan.cloud is None)
    if flow.returncode != 0:
        tail = log_path.read_text(encoding="utf-8", errors="replace").splitlines()[-3:]
        console.print(f"the flow ended with code {flow.returncode}; its log is {log_path}", style="red")
        console.print("\n".join(tail), highlight=False, markup=False)
    return flow.returncode


def show_if_measured(ledger: Ledger, plan: Plan, console: Console) -> bool:
    """Show the results of a run that is fully measured; if it is not, show nothing and return False."""
    if not ProgressReader(ledger, plan).read().complete:
        return False
    publish(ledger.store)
    write_report(ledger.store)
    show_results(ledger, console, f"everything of run {ledger.run_id} is measured already: nothing was run")
    return True


def show_results(ledger: Ledger, console: Console, remark: str) -> None:
    """Print the consolidated table and a remark; last the answer in words, dataset and page, and what to try next."""
    store = ledger.store
    console.print(results_table(store, ledger.run_id))
    if (which_k := recommendations_table(store, ledger.run_id)) is not None:
        console.print(which_k)
    console.print(remark)
    for answer in answers_of(store, ledger.run_id):
        about = f"{answer.about}: " if answer.about else ""
        console.print(f"\n{about}{answer.verdict}", style="bold", soft_wrap=True, highlight=False, markup=False)
        console.print(answer.evidence, highlight=False, markup=False)
    dataset = store.uri("results_consolidated.parquet")
    console.print(f'\ndataset: polars.read_parquet("{dataset}")', soft_wrap=True, highlight=False)
    console.print(f"page:    {store.uri('report.html')}", soft_wrap=True, highlight=False)
    if all(planned.cell.model.family_member is not None for planned in ledger.plan().cells):
        console.print(NEXT, highlight=False, markup=False)


def code_of_rows(ledger: Ledger, console: Console) -> int:
    """The exit code of a measured, published run by its rows as they stand; names those that make it no 0."""
    named = unanswered_rows(ledger.store, ledger.run_id)
    if not named:
        return 0
    words = f"requests failed or came back short: {'; '.join(named)}"
    console.print(words, style="red", soft_wrap=True, highlight=False, markup=False)
    return UNANSWERED_CODE
