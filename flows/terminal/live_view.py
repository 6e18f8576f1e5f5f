"""The live view of a run: cells x steps, the current rate, and the time left."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection

from rich import box
from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from configs.schema import Plan
from configs.visits import split_name
from flows.terminal.progress import CellProgress, ProgressReader, RunProgress, StepState
from flows.terminal.time_left import TimeLeft
from warehouse.ledger.clock import dollars, duration
from warehouse.ledger.commits import Ledger
from warehouse.ledger.store import StoreError
from warehouse.ledger.verdicts import VERDICTS

POLL_S = 2.0
"""Pause between two looks at the ledger: the view must not disturb what it watches."""

LINE_EVERY_S = 15.0
"""Pause between two lines about the whole where no terminal can show a moving one."""

SYMBOLS: dict[StepState, tuple[str, str]] = {
    "ok": ("ok", "green"),
    "suspect": ("suspect", "yellow"),
    "rejected": ("rejected", "red"),
    "running": ("...", "cyan"),
    "waiting": ("-", "dim"),
    "skipped": ("skipped", "dim"),
    "dropped": ("dropped", "dim"),
}


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
        if not self._console.is_terminal:
            return self._watch_lines(ended)
        with Live(console=self._console, auto_refresh=False, transient=False) as live:
            while True:
                over = ended()
                progress = self._read(must=over)
                if progress is not None:
                    live.update(Group(progress_table(progress), Text(self._summary(progress))), refresh=True)
                    if over:
                        return progress
                time.sleep(POLL_S)

    def _watch_lines(self, ended: Callable[[], bool]) -> RunProgress:
        while True:
            over = ended()
            progress = self._read(must=over)
            if progress is not None:
                self._say_changes(progress)
                self._say_now(progress)
                if over:
                    return progress
            time.sleep(POLL_S)

    def _say_changes(self, progress: RunProgress) -> None:
        for cell in progress.cells:
            if cell.failure and cell.failure not in self._said:
                self._said.add(cell.failure)
                self._console.print(f"{cell.label}: {cell.failure}", highlight=False, markup=False)
            for step, state in cell.steps.items():
                word = conditions(cell, (step,)) if state in ("suspect", "rejected") else state
                line = f"{cell.label} / {step}: {word}"
                if state in (*VERDICTS, "running", "dropped") and line not in self._said:
                    self._said.add(line)
                    self._say(f"{line}  ({self._summary(progress)})")

    def _say_now(self, progress: RunProgress) -> None:
        """Say what is going on and how long it all still takes, if no line said it lately."""
        if time.monotonic() - self._line_at >= LINE_EVERY_S:
            doing = [f"{cell.label}: {_now(cell)}" for cell in progress.cells if cell.heartbeat is not None]
            self._say("; ".join([self._summary(progress), *doing]))

    def _say(self, line: str) -> None:
        self._console.print(line, highlight=False, markup=False, soft_wrap=True)
        self._line_at = time.monotonic()

    def _read(self, *, must: bool) -> RunProgress | None:
        """How the run stands; None if that can't be read now: who watches must not end what he watches.

        Raises:
            StoreError: it `must` be read, and can't be.
        """
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
        text = f"{progress.measured} of {progress.total} steps measured, {duration(elapsed_s)}{spent} so far"
        left_s = self._left(progress)
        return text if left_s is None else f"{text}, about {duration(left_s)} left"


def progress_table(progress: RunProgress) -> Table:
    """Cells x steps, with what each live cell is doing now."""
    steps = list(dict.fromkeys(split_name(name)[0] for cell in progress.cells for name in cell.steps))
    title = f"run {progress.run_id}{money(progress)}"
    table = Table(box=box.SIMPLE_HEAD, title=title, title_justify="left", padding=(0, 1))
    table.add_column("cell", no_wrap=True)
    for step in steps:
        table.add_column(step, no_wrap=True)
    table.add_column("now")  # the column may wrap, so that it is cut before the others; its text does not wrap
    for cell in progress.cells:
        now = Text(_now(cell), no_wrap=True, overflow="ellipsis")
        table.add_row(cell.label, *(_state(cell, step) for step in steps), now)
    return table


def money(progress: RunProgress) -> str:
    """What the run's machines have cost so far and how many are up; empty if none was rented."""
    if progress.spent is None:
        return ""
    up = f", clusters up: {len(progress.spent.up)}" if progress.spent.up else ""
    unknown = ", and machines without a known price" if progress.spent.unpriced else ""
    return f": {dollars(progress.spent.usd)} spent{unknown}{up}"


def _state(cell: CellProgress, step: str) -> Text:
    """All visits of a step in one word: how far the running one is, how many are left, or what was found."""
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
        return cell.failure
    again = f"attempt {beat.attempt}, " if beat.attempt > 1 else ""
    return f"{again}{beat.last_line or beat.phase}"
