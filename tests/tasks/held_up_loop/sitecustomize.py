"""A FAKE neighbour in the runner's own thread, for a PYTHONPATH: each round of an event loop takes FAKE_ROUND_S more.

So does whatever holds a client up: a profiler, a log that waits for a disk, work that was never handed to a thread.
"""

from __future__ import annotations

import os
import time
from asyncio.base_events import BaseEventLoop

ROUND_S = float(os.environ["FAKE_ROUND_S"])

true = BaseEventLoop._run_once  # type: ignore[attr-defined]


def held_up(loop: BaseEventLoop) -> None:
    """A round, behind what the thread does besides."""
    time.sleep(ROUND_S)
    true(loop)


BaseEventLoop._run_once = held_up  # type: ignore[attr-defined]
