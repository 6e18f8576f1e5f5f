"""Run a sweep from the terminal: make what it needs, start its flow beside the view, show the results.

`sweep run` starts the flow in a process of its own, `sweep demo` through a Prefect server and worker of our own.
"""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import cast

import httpx
from rich.console import Console
from rich.text import Text

from configs.checkout import ROOT
from configs.errors import SpecsweepError
from configs.expand import default_run_id
from configs.load import named_anywhere
from configs.schema import Plan
from flows.plans import engine_environments, family_members, framework_environments, make_plan, record_run
from flows.preflight import require_datasets, require_machine, require_rehearsed
from flows.results import answers_of, recommendations_table, results_table, unanswered_rows
from flows.settling import require_budget
from flows.terminal.flow_process import WHY, FlowProcess
from flows.terminal.prefect_session import PrefectSession, SessionFailed, default_home
from flows.terminal.progress import LINE_EVERY_S, ProgressReader, RunWatcher
from tasks.family.members import ON_REQUEST, trained_dir, why_not
from tasks.host import environments, process_group
from tasks.host.process_group import ProcessGroup
from warehouse.dataset.snapshot import publish
from warehouse.ledger.claims import Claims
from warehouse.ledger.commits import Ledger
from warehouse.ledger.owner import in_words, is_one_of
from warehouse.ledger.store import StoreError, open_store
from warehouse.ledger.store.proof import require_create_only
from warehouse.report.display.figures import moment
from warehouse.report.page import write_report

SERVER_SILENCE_S = 7200.0  # of Prefect's, until we give up; a flow waits an hour to say how it ended
FINAL_STATES = ("COMPLETED", "FAILED", "CANCELLED")
CRASHED_S = 60.0  # after which a crash is final: a flow that lives denies it, and one that doesn't is started again
CLOUD_STOP_S = 300.0  # for a stopped flow to flush its nodes and take its clusters down; if killed, it leaves them up

NEXT = """next:    bin/sweep run demo-all  more of the same tiny models (half an hour)
         bin/sweep run own-gpu   AR beside n-gram drafts on this machine's card
         bin/sweep plan full     real models on spot H100s: hours and dollars"""
"""After a sweep of the tiny family: what else there is."""

UNANSWERED_CODE = 4  # where all was measured and requests failed or came back short; README and --help say so

Way = Callable[[Ledger, Plan, str, Console], int]
"""How a flow is run, `run_here` or `through_prefect`: shows it until it ends, and returns its exit code."""


def run_sweep(name: str, store_url: str, run_id: str | None, console: Console, way: Way) -> int:
    """Make what a sweep needs, run its flow unless all is measured, and print the results; returns the exit code.

    Raises:
        ConfigError: the sweep is wrong.
        StoreError: the store can't be trusted, or the run exists with another plan.
        BudgetExceeded: what is left of it would cost more than it may.
        DatasetUnreachable: an evaluation's items could not be read where it runs.
        OtherMachine, EngineUnavailable, ContainerUnavailable: this machine can't measure what it would have to.
        WouldNotStart: the pinned engine would refuse a cell that is rented.
    """
    started, plan = time.monotonic(), make_plan(name)
    store = open_store(store_url)
    require_create_only(store)
    ledger = Ledger(store, default_run_id(plan) if run_id is None else run_id)
    require_datasets(plan, ledger)
    require_machine(plan, ledger)
    with told(console, "checking the cells against the engine") as tell:
        require_rehearsed(plan, ledger, name, tell)
    record_run(ledger, plan)
    require_budget(ledger, plan)
    if ProgressReader(ledger, plan).read().complete:
        publish(store)
        write_report(store)
        remark = f"everything of run {ledger.run_id} is measured already: nothing was run"
    else:
        prepare(plan, console)
        if (code := way(ledger, plan, name, console)) != 0:
            return code
        remark = f"took {time.monotonic() - started:.0f} s"
    _show_results(ledger, console, remark)
    named = unanswered_rows(store, ledger.run_id)
    if not named:
        return 0
    words = f"requests failed or came back short: {'; '.join(named)}"
    console.print(words, style="red", soft_wrap=True, highlight=False, markup=False)
    return UNANSWERED_CODE


def naming_another(
    ended: Callable[[], bool], ledger: Ledger, plan: Plan, own: ProcessGroup, console: Console
) -> Callable[[], bool]:
    """The same question; meanwhile the first flow at the run that is none of `own` is named, and what Ctrl-C does.

    The store is read for that until one is named, or our own flow holds all cells that it can hold at once.
    """
    is_known = False

    def look() -> bool:
        nonlocal is_known
        if not is_known:
            with suppress(StoreError):  # the watcher says so
                is_known = _is_known_who_runs(ledger, plan, own, console)
        return ended()

    return look


def _is_known_who_runs(ledger: Ledger, plan: Plan, own: ProcessGroup, console: Console) -> bool:
    keys, ours = ledger.keys(), 0
    committed, claimed = ledger.committed_steps(keys), {key.split("/")[3] for key in keys if "/flows/" in key}
    names = {each.cell.cell_key: {step.name for step in each.measurements} for each in plan.cells}
    left = [each.cell for each in plan.cells if names[each.cell.cell_key] - {*committed.get(each.cell.cell_key, ())}]
    for cell in left:
        claim = Claims(ledger, cell.cell_key).holder() if cell.cell_key in claimed else None
        if claim is not None and not is_one_of(claim.owner, process_group.members(own)):
            said = (
                f"run {ledger.run_id} is being measured already: {cell.label} by {in_words(claim.owner)}, "
                f"since {moment(claim.granted_at)}. This command waits for it, and measures what is left. Ctrl-C ends "
                "this command alone; the other ends by Ctrl-C in its own terminal, by SIGTERM to that process, or by "
                "a cancel in its Prefect"
            )
            console.print(said, style="yellow", soft_wrap=True, highlight=False, markup=False)
            return True
        ours += claim is not None
    return ours >= min(plan.concurrency, len(left))


def run_here(ledger: Ledger, plan: Plan, name: str, console: Console) -> int:
    """Run the sweep flow with Prefect's ephemeral server and show it; returns the flow's exit code."""
    started = FlowProcess(default_home() / "ephemeral", [named_anywhere(name), ledger.store.url, ledger.run_id])
    flow, log_path = started.process, started.log_path
    try:
        ended = naming_another(lambda: flow.poll() is not None, ledger, plan, started.group, console)
        progress = RunWatcher(ledger, plan, console).watch(ended)
    finally:
        if plan.cloud is not None:  # Prefect's server ends after the flow, which would otherwise wait for it
            flow.terminate()
            with suppress(subprocess.TimeoutExpired):
                flow.wait(CLOUD_STOP_S)
        started.end(asks_first=plan.cloud is None)
    if flow.returncode != 0:
        lines = log_path.read_text(encoding="utf-8", errors="replace").splitlines()
        why = [line for line in lines if line.startswith(WHY)][-1:] or lines[-3:]  # nothing is said by what was killed
        console.print(f"the flow ended with code {flow.returncode}; its log is {log_path}", style="red")
        console.print(progress.without_failures("\n".join(why)), highlight=False, markup=False)
    return flow.returncode if flow.returncode >= 0 else 128 - flow.returncode  # as shells say of what a signal ended


def _show_results(ledger: Ledger, console: Console, remark: str) -> None:
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


def through_prefect(ledger: Ledger, plan: Plan, name: str, console: Console) -> int:
    """Run the sweep's deployment on a Prefect server and worker of our own and show it; returns the exit code."""
    settings = {"SPECSWEEP_STORE": ledger.store.url}
    with PrefectSession(default_home() / "demo", settings) as session:
        with console.status("starting Prefect") as status:
            session.start(status.update)
            parameters = {"name": named_anywhere(name), "run_id": ledger.run_id}
            flow_run_id = session.run(f"sweep/{deployment_of(name)}", parameters)
        console.print(f"Prefect UI while this runs: {session.url}/runs/flow-run/{flow_run_id}", soft_wrap=True)
        follower = FlowRun(session, flow_run_id)
        ended = naming_another(follower.ended, ledger, plan, session.group, console)
        progress = RunWatcher(ledger, plan, console).watch(ended)
        if follower.state != "COMPLETED":
            why = progress.without_failures(" ".join(follower.message.split()))
            console.print(f"the flow run ended {follower.state}: {why}", style="red", highlight=False, markup=False)
            return 1
    return 0


def deployment_of(name: str) -> str:
    """The deployment that runs a sweep: its own of `prefect.yaml`, else `demo`, which takes any name."""
    return name if name in ("demo", "full", "nightly") else "demo"


class FlowRun:
    """A flow run, asked again and again how it stands."""

    def __init__(self, session: PrefectSession, flow_run_id: str) -> None:
        """Ask nothing yet."""
        self._session = session
        self._url = f"{session.url}/api/flow_runs/{flow_run_id}"
        self._heard = time.monotonic()
        self._crashed_s: float | None = None
        self.state = "SCHEDULED"
        self.message = ""

    def ended(self) -> bool:
        """Whether it is over; SessionFailed if server or worker is gone, or silent for `SERVER_SILENCE_S`."""
        self._session.raise_if_dead()
        try:
            answer = httpx.get(self._url, timeout=10, trust_env=False).raise_for_status().json()
        except httpx.HTTPError as error:
            # a server whose database is locked for a while stops nothing: the flow and the ledger go on without it
            silent_s = time.monotonic() - self._heard
            self._crashed_s = None  # nor can a flow that lives deny a crash meanwhile
            if silent_s > SERVER_SILENCE_S:
                raise SessionFailed(f"the Prefect server has not answered for {silent_s:.0f} s: {error!r}") from error
            return False
        self._heard = time.monotonic()
        self.state = answer["state"]["type"]
        self.message = answer["state"].get("message") or ""
        if self.state != "CRASHED":
            self._crashed_s = None
        elif self._crashed_s is None:
            self._crashed_s = self._heard
        is_believed = self._crashed_s is not None and self._heard - self._crashed_s > CRASHED_S
        return self.state in FINAL_STATES or is_believed


class PreparationFailed(SpecsweepError):
    """Something the sweep needs could not be made; the text says what and why."""


def prepare(plan: Plan, console: Console) -> None:
    """Make the plan's environments on this machine, else InstallError, and train what it needs of the demo family."""
    frameworks = framework_environments(plan) if plan.cloud is None else []  # a rented node makes its own
    with told(console, "looking at environments") as tell:
        for name in ("node", *engine_environments(plan), *frameworks):
            environments.ensure(cast(environments.Name, name), tell=tell)
    lacking = [member for member in family_members(plan) if member in ON_REQUEST and why_not(member)]
    if lacking:
        train(lacking, console)


@contextmanager
def told(console: Console, first: str) -> Iterator[Callable[[str], None]]:
    """What is going on: one line that moves on a terminal, a new line now and then where none can."""
    said_s = time.monotonic()
    with console.status(first) as status:

        def tell(text: str) -> None:
            nonlocal said_s
            status.update(Text(text))
            if not console.is_terminal and time.monotonic() - said_s >= LINE_EVERY_S:
                console.print(text, highlight=False, markup=False, soft_wrap=True)
                said_s = time.monotonic()

        yield tell


def train(members: Sequence[str], console: Console) -> None:
    """Train members of the demo family, with a progress line; PreparationFailed if the builder fails."""
    python = environments.ensure("engine-cpu")
    argv = [str(python), "-m", "tasks.family.training.build", "--json"]
    argv += [option for member in members for option in ("--only", member)]
    console.print(f"training {', '.join(members)} of the demo family once (a few minutes, kept in {trained_dir()})")
    last = ""
    with (
        subprocess.Popen(argv, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as builder,
        told(console, "training") as tell,
    ):
        try:
            for line in builder.stdout or ():
                last = line.strip() or last
                tell(_training_line(last))
        except BaseException:
            builder.terminate()
            raise
    if builder.returncode != 0:
        raise PreparationFailed(f"training the demo family failed with code {builder.returncode}: {last}")


def _training_line(line: str) -> str:
    try:
        update = json.loads(line)
        return (
            f"training {update['member']}: step {update['step']} of {update['steps']}, "
            f"{update['elapsed_s']:.0f} s so far, about {update['eta_s']:.0f} s left"
        )
    except (ValueError, KeyError, TypeError):
        return line[:120]
