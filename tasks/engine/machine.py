"""One engine on a machine at a time: two would share the cores or the card, and both figures would be wrong."""

from __future__ import annotations

import asyncio
import fcntl
import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import IO

from configs.step import MeasuredStep
from tasks.engine import container
from tasks.host import process_group
from tasks.host.environment_spec import user_cache

POLL_S = 0.5
"""Pause between two tries of a lock."""

SPEED_LOCK_VARIABLE = "SPECSWEEP_SPEED_LOCK"
"""Names a file that the nodes of a pocket cloud share, as they share a machine: locked while a speed is measured."""

STATE_VARIABLE = "SPECSWEEP_STATE"


def state_dir() -> Path:
    """Where runners of this user keep locks, logs and work folders: SPECSWEEP_STATE, else the user's cache."""
    if asked := os.environ.get(STATE_VARIABLE):
        folder = Path(asked).absolute()
        os.environ[STATE_VARIABLE] = str(folder)  # processes that are started from here may work in another folder
        return folder
    return user_cache() / "state"


def cell_workdir(run_id: str, cell_key: str) -> Path:
    """Where the engine of one cell keeps its log and its group record on this machine."""
    return state_dir() / "cells" / f"{run_id}-{cell_key}"


@asynccontextmanager
async def the_only_engine(tell: Callable[[str], None]) -> AsyncIterator[None]:
    """Hold this machine for one engine, and first end what a killed runner left behind: an engine, frameworks.

    The lock is the kernel's, so a runner killed with -9 gives it back.
    """
    state_dir().mkdir(parents=True, exist_ok=True)
    with (state_dir() / "engine.lock").open("ab") as lock:
        await _lock(lock, lambda: tell("waiting for the engine of another cell on this machine to end"))
        left = state_dir() / "cells"
        if process_group.end_all_recorded(left) + container.remove_all(left):
            tell("ended an engine or a framework that a killed runner had left behind")
        yield


@asynccontextmanager
async def undisturbed(spec: MeasuredStep, tell: Callable[[str], None]) -> AsyncIterator[None]:
    """Measure a speed while no neighbour measures one.

    A node with a machine of its own has nothing to wait for.
    """
    shared = os.environ.get(SPEED_LOCK_VARIABLE)
    if shared is None or not spec.is_timed:
        yield
        return
    with Path(shared).open("rb") as lock:
        await _lock(lock, lambda: tell("waiting for the speed measurement of a neighbour on this machine"))
        yield


async def _lock(file: IO[bytes], waiting: Callable[[], None]) -> None:
    """Take the kernel's lock on a file, which a killed process gives back; calls `waiting` after each failed try."""
    while True:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            waiting()
            await asyncio.sleep(POLL_S)
