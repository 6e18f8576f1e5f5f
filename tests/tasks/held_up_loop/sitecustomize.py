"""A FAKE neighbour in the runner's own thread, for a PYTHONPATH: each round of its event loop takes FAKE_ROUND_S more.

So does whatever holds a client up: a profiler, a log that waits for a disk, work that was never handed to a thread.
Only while the client is watched, that is while a load is timed: beside that it would but take longer.
"""

from __future__ import annotations

import os
import time
from asyncio.base_events import BaseEventLoop
from typing import Any

from tasks.timing.timed import ClientWatch

ROUND_S = float(os.environ["FAKE_ROUND_S"])

watched: set[ClientWatch] = set()
true_round = BaseEventLoop._run_once  # type: ignore[attr-defined]
true_begin, true_end = ClientWatch.__aenter__, ClientWatch.__aexit__


def held_up(loop: BaseEventLoop) -> None:
    """A round, behind what the thread does besides."""
    if watched:
        time.sleep(ROUND_S)
    true_round(loop)


async def begin(watch: ClientWatch) -> ClientWatch:
    """From here on."""
    watched.add(watch)
    return await true_begin(watch)


async def end(watch: ClientWatch, *error: Any) -> None:
    """Up to here."""
    watched.discard(watch)
    await true_end(watch, *error)


BaseEventLoop._run_once = held_up  # type: ignore[attr-defined]
ClientWatch.__aenter__, ClientWatch.__aexit__ = begin, end  # type: ignore[method-assign, assignment]
