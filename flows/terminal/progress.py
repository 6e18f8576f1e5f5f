"""Where a run stands, read off the ledger: `sweep status`, the live view, and how long the run still takes."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Collection, Mapping
from contextlib import nullcontext
from typing import Literal, NamedTuple

from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from configs.errors import shortened
from configs.schema import Plan
from configs.visits import split_name
from flows.forecast.estimates import start_s
from flows.forecast.forecast import forecast
from flows.matrix import Column, Matrix, words
from warehouse.dataset.bill import Spending, Spent
from warehouse.ledger.clock import HOUR_S, dollars, duration
from warehouse.ledger.commits import Commit, Ledger
from warehouse.ledger.lease import Heartbeat, Leases
from warehouse.ledger.store import StoreError
from warehouse.ledger.verdicts import VERDICTS, Reason, Verdict
from warehouse.report.display.figures import plural

StepState = Verdict | Literal["running", "waiting", "skipped", "dropped"]  # of a step in one engine start
FLOW_START_S = 12.0  # from asking for a flow until its first engine is started: Prefect's and our processes (10-14 s)
PUBLISH_S = 6.0  # from the last commit until the page is written and the flow has ended (measured 5-7 for the demo)
PRIOR_S = 40.0  # forecast seconds that weigh as if measured at the forecast's pace: one engine start says little
PACE_BOUNDS = (0.5, 4.0)  # measured seconds per forecast second that are believed
POLL_S = 2.0  # pause between two looks at the ledger: the view must not disturb what it watches
NOW_COLUMNS = 20  # narrowest that what a cell does now may get
LINE_EVERY_S = 15.0  # pause between two lines about the whole where no terminal can show a moving one

SYMBOLS: dict[StepState, tuple[str, str]] = {
    "ok": ("ok", "green"),
    "suspect": ("suspect", "yellow"),
    "rejected": ("rejected", "red"),
    "running": ("...", "cyan"),
    "waiting": ("-", "dim"),
    "skipped": ("skipped", "dim"),
    "dropped": ("dropped", "dim"),
}


class CellProgress(NamedTuple):
    """One cell: its steps' states and conditions (ok, of), and its heartbeat while an owner lives.

    Else `failed` is which attempt was the last and how it ended, and `failure` why, on one line.
    """

    label: str
    cell_key: str
    steps: Mapping[str, StepState]
    judged: Mapping[str, tuple[int, int]]
    heartbeat: Heartbeat | None
    failure: str = ""
    failed: str = ""

    @property
    def why_failed(self) -> str:
        """A line that says so of the cell; empty if no attempt failed, or another one is at it."""
        return f"{self.label}: {shortened(self.failure)} ({self.failed})" if self.failure else ""

    def document(self) -> dict[str, object]:
        """The cell for `--json`."""
        return {
            "label": self.label, "cell_key": self.cell_key, "steps": dict(self.steps),
            "conditions": {name: {"ok": ok, "of": of} for name, (ok, of) in self.judged.items()},
            "heartbeat": None if self.heartbeat is None else self.heartbeat.model_dump(mode="json"),
        }  # fmt: skip


class RunProgress(NamedTuple):
    """One run; `spent` is what its machines have cost so far, None if nothing was rented."""

    run_id: str
    cells: tuple[CellProgress, ...]
    spent: Spent | None = None

    @property
    def measured(self) -> int:
        """Steps with a commit."""
        return sum(state in VERDICTS for cell in self.cells for state in cell.steps.values())

    @property
    def total(self) -> int:
        """Steps that are measured or will be."""
        return sum(state not in ("skipped", "dropped") for cell in self.cells for state in cell.steps.values())

    @property
    def measured_of(self) -> str:
        """`3 of 4 steps measured`."""
        return f"{self.measured} of {plural(self.total, 'step')} measured"

    def without_failures(self, message: str) -> str:
        """A message without the reasons that are shown of the cells already."""
        for reason in {cell.failure for cell in self.cells if cell.failure}:
            for said in (reason, reason.partition(": ")[2]):  # of an attempt that is lost the ledger says first how
                message = re.sub(f": {re.escape(said)}(?=; |$)", "", message)
        return message

    @property
    def complete(self) -> bool:
        """Whether nothing is left to measure."""
        return self.measured == self.total


class ProgressReader:
    """Reads a run as often as asked; commits never change and are read only once."""

    def __init__(self, ledger: Ledger, plan: Plan) -> None:
        self._ledger = ledger
        self._plan = plan
        self._commits: dict[tuple[str, str], Commit] = {}
        self._spending = Spending(ledger.store, time.time)

    def read(self) -> RunProgress:
        """Where the run stands now."""
        committed = self._ledger.committed_steps()
        cells = []
        for planned in self._plan.cells:
            key, done = planned.cell.cell_key, committed.get(planned.cell.cell_key, ())
            states: dict[str, StepState] = {}
            judged: dict[str, tuple[int, int]] = {}
            order = [step.step for step in planned.steps]  # the starts of a step side by side
            names = [each.name for each in planned.measurements]
            for name in sorted(names, key=lambda name: order.index(split_name(name)[0])):
                commit = self._commit(key, name) if name in done else None
                states[name] = "waiting" if commit is None else commit.verdict
                if commit is not None and Reason.DROPPED in commit.reasons:
                    states[name] = "dropped"
                if commit is not None and commit.judged is not None and commit.judged_ok is not None:
                    judged[name] = (commit.judged_ok, commit.judged)
            gates = {each.name for each in planned.measurements if each.spec.is_gate}
            if any(states[gate] == "rejected" for gate in gates):
                states = {name: "skipped" if state == "waiting" else state for name, state in states.items()}
            cells.append(self._with_owner(planned.cell.label, key, states, judged))
        spent = self._spending.of_run(self._ledger.run_id)
        return RunProgress(self._ledger.run_id, tuple(cells), spent if spent.by_cell else None)

    def _with_owner(
        self, label: str, key: str, states: dict[str, StepState], judged: Mapping[str, tuple[int, int]]
    ) -> CellProgress:
        if not any(state == "waiting" for state in states.values()):
            return CellProgress(label, key, states, judged, None)
        leases = Leases(self._ledger, key)
        lease = leases.current()
        beat = leases.heartbeat() if lease is not None and not leases.is_free(lease) else None
        if beat is not None and beat.step is not None and states.get(beat.step) == "waiting":
            states[beat.step] = "running"
        ended = leases.closed(lease.epoch) if lease is not None and beat is None else None
        if ended is None or not ended.reason:
            return CellProgress(label, key, states, judged, beat)
        failed = f"attempt {ended.attempt} {ended.outcome}"
        return CellProgress(label, key, states, judged, beat, " ".join(ended.reason.split()), failed)

    def _commit(self, key: str, name: str) -> Commit | None:
        commit = self._commits.get((key, name)) or self._ledger.read_commit(key, name)
        if commit is not None:
            self._commits[key, name] = commit
        return commit


class TimeLeft:
    """Seconds left of a run, asked every few seconds."""

    def __init__(self, plan: Plan, clock: Callable[[], float] = time.monotonic) -> None:
        self._plan, self._clock = plan, clock
        self._began_s = clock()
        self._has_begun = False
        self._first_left_s: float | None = None
        self._planned_s, self._changed_s = 0.0, self._began_s

    def __call__(self, progress: RunProgress) -> float | None:
        """Seconds until the page is written; None once nothing is left to measure.

        What is being done counts as done second by second, up to its forecast; what takes longer slows the pace.
        """
        if progress.complete:
            return None
        now_s = self._clock()
        self._has_begun = self._has_begun or any(cell.heartbeat is not None for cell in progress.cells)
        planned_s, doing_s = self._planned(progress)
        if self._first_left_s is None:
            self._first_left_s = planned_s
        if planned_s != self._planned_s:
            self._planned_s, self._changed_s = planned_s, now_s
        credit_s = min(now_s - self._changed_s, doing_s)
        done_s = self._first_left_s - planned_s + credit_s
        low, high = PACE_BOUNDS
        pace = min(max((now_s - self._began_s + PRIOR_S) / (done_s + PRIOR_S), low), high)
        return pace * (planned_s - credit_s)

    def _planned(self, progress: RunProgress) -> tuple[float, float]:
        """Forecast seconds of what is left, the flow's own start and end included, and of what is being done of it."""
        committed = {
            cell.cell_key: [step for step, state in cell.steps.items() if state in (*VERDICTS, "dropped")]
            for cell in progress.cells
        }
        planned = forecast(self._plan, committed)
        left_s, doing_s = planned.wall_h * HOUR_S + PUBLISH_S, 0.0
        steps_s = {(cell.cell_key, step.name): step.seconds for cell in planned.cells for step in cell.steps}
        started_s = start_s(self._plan.gpu)
        for cell in progress.cells:
            step = None if cell.heartbeat is None else cell.heartbeat.step
            if step is not None and step not in committed[cell.cell_key]:
                left_s -= started_s / planned.concurrency  # its engine is up
                doing_s += steps_s.get((cell.cell_key, step), 0.0) / planned.concurrency
            elif cell.heartbeat is not None:
                doing_s += started_s / planned.concurrency
        return (left_s, doing_s) if self._has_begun else (left_s + FLOW_START_S, FLOW_START_S)


class RunWatcher:
    """Shows a run until it ends: a live table on a terminal, a line per change elsewhere."""

    def __init__(self, ledger: Ledger, plan: Plan, console: Console) -> None:
        self._reader = ProgressReader(ledger, plan)
        self._left = TimeLeft(plan)
        self._console = console
        self._started = self._line_at = time.monotonic()
        self._said: set[str] = set()

    def watch(self, ended: Callable[[], bool]) -> RunProgress:
        """Show the run until `ended()` is true; returns where it stands then."""
        is_live = self._console.is_terminal
        with Live(console=self._console, auto_refresh=False) if is_live else nullcontext() as live:
            while True:
                over = ended()
                progress = self._read(must=over)
                if progress is not None and live is not None:
                    # the line first: of a table that is higher than the terminal the end isn't shown
                    live.update(Group(Text(self._summary(progress)), progress_table(progress)), refresh=True)
                elif progress is not None:
                    self._say_changes(progress)
                if progress is not None and over:
                    return progress
                time.sleep(POLL_S)

    def _say_changes(self, progress: RunProgress) -> None:
        """Say what is new; if that is nothing, now and then what is going on and how long it all still takes."""
        for cell in progress.cells:
            if cell.why_failed and cell.why_failed not in self._said:
                self._said.add(cell.why_failed)
                self._say(cell.why_failed)
            for step, state in cell.steps.items():
                word = conditions(cell, (step,)) if state in ("suspect", "rejected") else state
                line = f"{cell.label} / {step}: {word}"
                if state in (*VERDICTS, "running", "dropped") and line not in self._said:
                    self._said.add(line)
                    self._say(f"{line}  ({self._summary(progress)})")
        if time.monotonic() - self._line_at >= LINE_EVERY_S:
            doing = [f"{cell.label}: {_now(cell)}" for cell in progress.cells if cell.heartbeat is not None]
            self._say("; ".join([self._summary(progress), *doing]))

    def _say(self, line: str) -> None:
        self._console.print(line, highlight=False, markup=False, soft_wrap=True)
        self._line_at = time.monotonic()

    def _read(self, *, must: bool) -> RunProgress | None:
        """How the run stands; None, or StoreError if it `must` be read, if it can't be: watching must not end it."""
        try:
            return self._reader.read()
        except StoreError as error:
            if must:
                raise
            if str(error) not in self._said:
                self._said.add(str(error))
                self._console.print(f"can't see how the run stands: {error}", highlight=False, markup=False)
            return None

    def _summary(self, progress: RunProgress) -> str:
        elapsed_s = time.monotonic() - self._started
        spent = f", {dollars(progress.spent.usd)}" if progress.spent else ""
        text = f"{progress.measured_of}, {duration(elapsed_s)}{spent} so far"
        left_s = self._left(progress)
        return text if left_s is None else f"{text}, about {duration(left_s)} left"


def progress_table(progress: RunProgress) -> Group:
    """Cells x steps, with what each live cell is doing now, and why the last attempts of others failed."""
    cells = progress.cells
    steps = dict.fromkeys(split_name(name)[0] for cell in cells for name in cell.steps)
    states = [words(step, [_state(cell, step) for cell in cells]) for step in steps]
    columns = [*states, Column("now", [_now(cell) for cell in cells], narrowest=NOW_COLUMNS)]
    names, title = [words("cell", [cell.label for cell in cells])], f"run {progress.run_id}{money(progress)}"
    failures = [Text(cell.why_failed, "red") for cell in cells if cell.why_failed]
    return Group(Matrix(names, columns, title), *failures)


def money(progress: RunProgress) -> str:
    """What the run's machines have cost so far and how many are up; empty if none was rented."""
    if progress.spent is None:
        return ""
    up = f", clusters up: {len(progress.spent.up)}" if progress.spent.up else ""
    unknown = ", and machines without a known price" if progress.spent.unpriced else ""
    return f": {dollars(progress.spent.usd)} spent{unknown}{up}"


def _state(cell: CellProgress, step: str) -> Text:
    """All starts of a step in one word: how far the running one is, how many are left, or what was found."""
    all_visits = {name: state for name, state in cell.steps.items() if split_name(name)[0] == step}
    visits = {name: state for name, state in all_visits.items() if state != "dropped"}
    done = [state for state in visits.values() if state in VERDICTS]
    if not visits:
        return Text("")
    if "running" in visits.values() and cell.heartbeat is not None:
        return Text(f"{cell.heartbeat.percent:.0f} %", style=SYMBOLS["running"][1])
    if done and len(done) < len(visits) and "skipped" not in visits.values():
        return Text(f"{len(done)} of {len(visits)} visits", style=SYMBOLS["running"][1])
    state = max(visits.values(), key=list(SYMBOLS).index)
    word, style = SYMBOLS[state]
    said = conditions(cell, tuple(visits)) if state in ("suspect", "rejected") else word
    return Text(said if len(visits) == len(all_visits) else f"{said}, then dropped", style=style)


def conditions(cell: CellProgress, names: Collection[str]) -> str:
    """`5 of 6 ok` over some of a cell's measurements, or the worst verdict where nothing was counted."""
    judged = [cell.judged[name] for name in names if name in cell.judged]
    ok, of = sum(each[0] for each in judged), sum(each[1] for each in judged)
    worst_state = max((cell.steps[name] for name in names), key=list(SYMBOLS).index)
    return f"{ok} of {of} ok" if of > 1 else SYMBOLS[worst_state][0]


def _now(cell: CellProgress) -> str:
    beat = cell.heartbeat
    if beat is None:
        return cell.failed
    again = f"attempt {beat.attempt}, " if beat.attempt > 1 else ""
    return f"{again}{beat.last_line or beat.phase}"
