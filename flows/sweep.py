"""The sweep flow: plan, measure every cell on a cluster of its own, publish what is known.

To continue a run, start it again: the ledger in the store says what is measured; Prefect's database is not asked.
The deployments `sweep/demo`, `sweep/full` and `sweep/nightly` are in `prefect.yaml`.
"""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import nullcontext
from contextvars import copy_context
from functools import partial
from pathlib import Path
from typing import Any

from prefect import flow, get_run_logger, runtime, task
from prefect.cache_policies import NO_CACHE
from prefect.client.schemas.objects import State
from prefect.states import Cancelled
from prefect.transactions import CommitMode, transaction

from configs.errors import SpecsweepError, shortened
from configs.expand import default_run_id
from configs.schema import Plan, PlannedCell
from configs.secrets import guard_logs
from configs.visits import BACK, MIDDLE, MIRRORED
from flows.automations import MAX_FLOW_RUNS
from flows.cell import CellOutcome, measure_cell
from flows.clock import FlowStopped, StoppableClock
from flows.dropping import drop_what_is_out
from flows.flow_heartbeat import HeldCells
from flows.own_run import AnotherNight, cancel_heard, only_night, outlive_reader, starts, until_prefect_answers
from flows.plans import make_plan, record_run, store_url
from flows.prefect_view import (
    ProgressBar,
    SweepChoice,
    cell_state,
    report_text,
    run_name,
    show_results,
    shown,
    step_state,
    tag_run,
)
from flows.preflight import require_datasets, require_machine, require_rehearsed
from flows.renting.expiry import expiry_renewed
from flows.results import answers_of, result_rows, results_table
from flows.run_context import RunContext, run_context_for
from flows.settling import open_cells, settle_and_require_budget
from warehouse.dataset.snapshot import publish
from warehouse.ledger.commits import Commit, Ledger
from warehouse.ledger.store import Store, open_store, until_back
from warehouse.ledger.store.proof import require_create_only
from warehouse.report.display.figures import plural
from warehouse.report.page import write_report

LEG_NAMES = {MIDDLE: " (middle)", BACK: " (back)"}  # what follows the label in the name of a cell's task run
AWAY_POLL_S = 3.0  # pause before publishing again, whenever the store was away for longer than its patience


class SweepIncomplete(SpecsweepError):
    """Some cells could not be measured; what was measured is committed and published."""


@flow(name="sweep", flow_run_name=run_name, log_prints=True)
def sweep(
    name: SweepChoice = "demo", store: str | None = None, run_id: str | None = None, dated: bool = False
) -> str | State[None]:
    """Measure a sweep and publish the dataset and the report.

    Args:
        name: a sweep of `configs/sweeps/` or a path to a user's own YAML.
        store: folder or `s3://bucket/prefix`; else SPECSWEEP_STORE, else `results/` of this checkout.
        run_id: which run to start or continue; else made from the plan, so that the same plan continues the same run.
        dated: name the run after its scheduled day (the nightly); while an earlier night lives, it ends at once.

    Returns:
        Where the report is; Cancelled if it was cancelled, or ends at once.
    """
    guard_logs()
    outlive_reader()
    if (count := starts(get_run_logger().warning)) > MAX_FLOW_RUNS:
        raise SweepIncomplete(f"this flow run was started {count} times: look at its log before starting another")
    plan = make_plan(name)
    opened = open_store(store_url(store))
    left_behind = require_create_only(opened)
    if left_behind is not None:
        get_run_logger().warning(left_behind)
    scheduled: Any = runtime.flow_run.scheduled_start_time
    own_id = f"{Path(name).stem}-{scheduled:%Y-%m-%d}" if dated else default_run_id(plan)
    ledger, tell = Ledger(opened, own_id if run_id is None else run_id), get_run_logger().info
    shown("sweep and run id are", partial(tag_run, plan.sweep, ledger.run_id), tell)
    try:
        with only_night(opened, Path(name).stem, tell, again=count > 1) if dated else nullcontext():
            require_datasets(plan, ledger)
            require_machine(plan, ledger)
            require_rehearsed(plan, ledger, name, tell)
            record_run(ledger, plan)
            outcomes = measure_all(ledger, plan)
            report = publish_results(opened, ledger.run_id)
    except (AnotherNight, FlowStopped) as why:
        tell(str(why))
        return Cancelled(message=str(why))
    failed = [outcome for outcome in outcomes if outcome.ended == "failed"]
    if failed:
        raise SweepIncomplete(f"{len(failed)} of {plural(len(outcomes), 'cell')} failed; {_reasons(failed)}")
    return report


def _reasons(failed: Sequence[CellOutcome]) -> str:
    """Each reason once, behind all cells that failed for it."""
    cells: dict[str, list[str]] = {}
    for outcome in failed:
        cells.setdefault(outcome.reason, []).append(outcome.label)
    return "; ".join(f"{', '.join(labels)}: {reason}" for reason, labels in cells.items())


def measure_all(ledger: Ledger, plan: Plan) -> list[CellOutcome]:
    """Measure every cell, at most `plan.concurrency` at a time; one cell's failure does not stop the others.

    In a mirrored design the way back follows the way forwards, in reverse, for the cells that were measured. Where the
    sweep says `drop: after_first_visit`, the K that are out by then are left out. In a balanced one AR comes between.
    Raises FlowStopped: the run was cancelled.
    """
    outcomes: dict[str, CellOutcome] = {}
    mirrored = [planned for planned in plan.cells if planned.visits in MIRRORED]
    legs: list[int | None] = [*sorted({start.leg for planned in mirrored for start in planned.starts})] or [None]
    total = sum(_is_measured_in(planned, leg) for leg in legs for planned in plan.cells)
    gone, clock = 0, StoppableClock()
    tell = get_run_logger().info
    pool = ThreadPoolExecutor(plan.concurrency)
    bar = ProgressBar(ledger.run_id, tell)

    def stop(why: str) -> None:
        clock.stop(why)
        ledger.store.hurry()

    renewed = expiry_renewed(ledger, plan, tell)
    # `cancel_heard` is innermost: it is over before the pool waits for clusters to go down
    with renewed as attend, HeldCells(ledger, tell, attend) as held, pool, cancel_heard(stop, tell):
        context = run_context_for(ledger, plan, clock, held, tell)
        settle_and_require_budget(ledger, plan, context)
        adopted = open_cells(ledger) if plan.cloud is not None else set()
        pending: set[Future[CellOutcome]] = set()
        try:
            for leg in legs:
                if leg == BACK:
                    drop_what_is_out(ledger, plan, tell, partial(clock.sleep, context.poll_s))
                left = [each for each in _left(plan, outcomes, adopted) if _is_measured_in(each, leg)]
                pending = {
                    pool.submit(copy_context().run, _measured_or_failed, ledger, planned, context, leg)
                    for planned in (left if leg != BACK else reversed(left))
                }
                while pending:
                    done, pending = wait(pending, return_when=FIRST_COMPLETED)
                    outcomes |= {future.result().cell_key: future.result() for future in done}
                    gone += len(done)
                    bar.show(100 * gone / total)
                    clock.require_going()
        except BaseException as error:  # also a termination signal: clusters go down before the flow ends
            stop(f"the flow ends: {type(error).__name__}")
            for future in pending:
                future.cancel()
            raise
    return list(outcomes.values())


def _is_measured_in(planned: PlannedCell, leg: int | None) -> bool:
    return leg is None or any(start.leg == leg for start in planned.starts)


def _left(plan: Plan, outcomes: Mapping[str, CellOutcome], adopted: Container[str]) -> list[PlannedCell]:
    """Cells that no earlier leg has given up or rejected, in the plan's order, but those whose machine is up first.

    A machine that nobody manages ends itself, however well it measures.
    """
    ended = {key for key, outcome in outcomes.items() if outcome.ended != "measured"}
    left = [planned for planned in plan.cells if planned.cell.cell_key not in ended]
    return sorted(left, key=lambda planned: planned.cell.cell_key not in adopted)


def _measured_or_failed(ledger: Ledger, planned: PlannedCell, context: RunContext, leg: int | None) -> CellOutcome:
    named = run_cell.with_options(task_run_name=f"{planned.cell.label}{LEG_NAMES.get(leg or 0, '')}")
    found: object = named(ledger, planned, context, leg, return_state=True).result(raise_on_failure=False)
    if isinstance(found, CellOutcome):
        return found
    said = f"{type(found).__name__}: {found}"
    reason = said if isinstance(found, SpecsweepError) else shortened(said)  # Prefect has logged all of it
    return CellOutcome(planned.cell.cell_key, planned.cell.label, "failed", reason, 0)


@task(cache_policy=NO_CACHE, persist_result=False)
def run_cell(ledger: Ledger, planned: PlannedCell, context: RunContext, leg: int | None) -> State[CellOutcome]:
    """Measure one cell on clusters of its own; each committed step becomes a task run of its own in the UI."""
    cell = planned.cell

    def committed(commit: Commit) -> None:
        named = step_measured.with_options(task_run_name=f"{cell.label} / {commit.step}")
        with transaction(commit_mode=CommitMode.EAGER):  # else Prefect would roll it back when the cell raises
            named(commit, return_state=True)  # whatever ails Prefect then, the cell goes on

    try:
        outcome = measure_cell(ledger, planned, context, committed, leg)
    except FlowStopped as stopped:
        outcome = CellOutcome(cell.cell_key, cell.label, "stopped", str(stopped), 0)
    return cell_state(outcome)


@task(cache_policy=NO_CACHE, persist_result=False)
def step_measured(commit: Commit) -> State[str]:
    """Show a committed step in the Prefect UI, with its verdict."""
    return step_state(commit)


@task(task_run_name="publish", cache_policy=NO_CACHE, persist_result=False)
def publish_results(store: Store, run_id: str) -> str:
    """Consolidate every run of the store, write the report, and show both in the UI."""

    def published() -> tuple[str, list[dict[str, str]], str]:
        publish(store)
        page = write_report(store)
        text = report_text(answers_of(store, run_id), results_table(store, run_id), page)
        return page, result_rows(store, run_id), text

    clock, warn = StoppableClock(), get_run_logger().warning
    with cancel_heard(clock.stop, warn):
        page, rows, text = until_back(published, partial(clock.sleep, AWAY_POLL_S))
    until_prefect_answers(warn)
    shown("the results are", partial(show_results, run_id, rows, text), get_run_logger().warning)
    return page
