"""What an engine shares its machine with: never another engine, at times a neighbour's node, on a CPU its client."""

from __future__ import annotations

import asyncio
import fcntl
import os
import shutil
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import IO

from configs.errors import SpecsweepError
from configs.step import MeasuredStep
from tasks.engine import container
from tasks.host import process_group
from tasks.host.environment_spec import user_cache

POLL_S = 0.5  # pause between two tries of a lock
SPEED_LOCK_VARIABLE = "SPECSWEEP_SPEED_LOCK"  # a file that nodes of one machine share, locked while a speed is measured
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
    """Hold this machine for one engine, and first end what a killed runner left behind: an engine, frameworks."""
    state_dir().mkdir(parents=True, exist_ok=True)
    with (state_dir() / "engine.lock").open("ab") as lock:
        await _lock(lock, lambda: tell("waiting for the engine of another cell on this machine to end"))
        left = state_dir() / "cells"
        if process_group.end_all_recorded(left) + container.remove_all(left):
            tell("ended an engine or a framework that a killed runner had left behind")
        yield


@asynccontextmanager
async def undisturbed(spec: MeasuredStep, tell: Callable[[str], None]) -> AsyncIterator[None]:
    """Measure a speed while no neighbour measures one; a node with a machine of its own has nothing to wait for."""
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


NICE_VARIABLE = "SPECSWEEP_ENGINE_NICE"

NICE, MOST_NICE = 5, 19
"""Nice value of an engine's session on its client's processors, unless the variable says another.

Linux groups tasks by session where `sched_autogroup_enabled` is 1; a process's own nice value counts inside its group
only. An engine that keeps every processor busy left the runner's session without a turn for half a second. Streams came
in one burst, and rates of four in flight differed by 35 %. How late the client's timer was at most (two cores, kernel
6.18, 2026-11): 635 ms at nice 0 (14 windows), 32 ms at 5 (97 windows, 95 of them below 8 ms), 7 ms at 15 (28 windows).

It yields from its first healthy answer on, because its start is not timed. A start takes 25 to 35 seconds of a
processor.

The price: the engine yields to third parties, too. AR's tok/s beside two busy sessions on two cores: 57 to 85 at nice
0, 24 at 5, 5 to 8 at 10, 2 at 15. At 15 one cell of a sweep took 19 minutes so.

Source: man 7 sched, "The autogroup feature"; kernel/sched/autogroup.c.
"""

TRIES, PAUSE_S = 8, 0.15  # a busy group is asked again: an unprivileged user may change one in .1 s on a machine


def shares_processors(on_cpu: bool) -> bool:
    """Whether an engine's work is done by the processors that its client needs: there is no card, or it uses none."""
    return on_cpu or shutil.which("nvidia-smi") is None


def asked_nice() -> int:
    """The nice value that an engine is to have; SpecsweepError: the variable has none."""
    said = os.environ.get(NICE_VARIABLE, str(NICE))
    if not said.isdecimal() or int(said) > MOST_NICE:
        raise SpecsweepError(f"{NICE_VARIABLE} is {said!r}; accepted: 0 to {MOST_NICE}, or unset it for {NICE}")
    return int(said)


async def give_way(pid: int, asked: int) -> int | None:
    """Let a new session's group give way, say so in the log, and return its nice value.

    None: the kernel groups no sessions, or refuses. The engine is measured all the same: `client_starved` says where
    that shows.
    """
    file, nice, said = Path(f"/proc/{pid}/autogroup"), None, f"does not give way: busy {TRIES} times"
    for _ in range(TRIES):
        try:
            with file.open("r+", encoding="ascii") as group:  # never made, where the kernel has none
                group.write(str(asked))
            words = file.read_text(encoding="ascii").split()  # "/autogroup-4389 nice 15"
        except BlockingIOError:
            await asyncio.sleep(PAUSE_S)
            continue
        except OSError as error:
            said = f"does not give way: {error}"
        else:
            nice = int(words[-1]) if words else None
            said = "is in no group of its own" if nice is None else f"gives way to it at nice {nice}"
        break
    print(f"the engine shares its processors with the client: its session {said}", flush=True)
    return nice
