"""A sweep of the tiny family, measured into a store of its own by the real command."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.busy_machine import Neighbours
from tests.command_lines import start_command

OTHERS_SHARE = "others-share"
"""Beside a store: of all processors' time, what others took while it was measured, 0 to 1."""


def start(sweep: str, folder: Path) -> subprocess.Popen[str]:
    """`sweep run`: its store is `store` in the folder, its state `state`."""
    store, state = str(folder / "store"), str(folder / "state")
    return start_command("run", sweep, "--store", store, env={"SPECSWEEP_STATE": state})


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
