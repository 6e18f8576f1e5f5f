"""A sweep of the tiny family, measured into a store of its own by the real command."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from configs.expand import default_run_id
from flows.plans import make_plan
from tests.busy_machine import Neighbours
from tests.command_lines import command_of, start_command
from tests.tasks.test_cell import processes_with, wait_until
from warehouse.ledger.commits import Ledger
from warehouse.ledger.lease import Attempt, Leases
from warehouse.ledger.store import open_store

OTHERS_SHARE = "others-share"
"""Beside a store: of all processors' time, what others took while it was measured, 0 to 1."""


def start(sweep: str, folder: Path) -> subprocess.Popen[str]:
    """`sweep run`: its store is `store` in the folder, its state `state`."""
    return start_command("run", sweep, "--store", folder / "store", env={"SPECSWEEP_STATE": str(folder / "state")})


def finish(run: subprocess.Popen[str], within_s: float) -> None:
    """Waits for its end, which must be a good one."""
    try:
        said, _ = run.communicate(timeout=within_s)
    finally:
        run.kill()
        run.wait()
    assert run.returncode == 0, said


def measure(sweep: str, folder: Path, within_s: float = 1200) -> Path:
    with watched(folder):
        finish(start(sweep, folder), within_s)
    return folder / "store"


@contextmanager
def watched(folder: Path) -> Iterator[None]:
    """Notes beside the store how much of the processors others took meanwhile."""
    neighbours = Neighbours()
    yield
    (folder / OTHERS_SHARE).write_text(f"{neighbours.share():.3f}", encoding="ascii")


class TinyRun:
    """A run of a shipped sweep of the tiny family, and what of it can be killed."""

    def __init__(self, sweep: str, folder: Path) -> None:
        self.folder, self.store, self.state = folder, folder / "store", folder / "state"
        self.plan = make_plan(sweep)
        self.ledger = Ledger(open_store(str(self.store)), default_run_id(self.plan))
        self.keys = {planned.cell.technique.name: planned.cell.cell_key for planned in self.plan.cells}

    def attempts(self, technique: str) -> list[Attempt]:
        return Leases(self.ledger, self.keys[technique]).attempts()

    def wait_in(self, technique: str, step: str) -> None:
        """Until a runner is inside this step of the cell."""
        key = self.keys[technique]

        def is_in() -> bool:
            beat = Leases(self.ledger, key).heartbeat()
            return beat is not None and beat.step == step and self.ledger.read_commit(key, step) is None

        wait_until(is_in, f"the {technique} cell in its {step} step", 900)

    def processes(self, word: str = "") -> list[int]:
        """Those whose command line holds the word."""
        return [pid for pid in processes_with(str(self.state)) if word in command_of(pid)]

    def kill(self, word: str) -> None:
        pids = self.processes(word)
        assert pids, f"no process of the run has {word!r} in its command line"
        for pid in pids:
            os.kill(pid, signal.SIGKILL)
