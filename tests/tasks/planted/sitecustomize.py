"""For a PYTHONPATH: what a runner's machine may do to it. Each happens where its variable is set.

`FAKE_QUIET_S`: a request may stand still for so long, not for 300 s. That bound is a constant and no user's setting.
`FAKE_CLOCK_FILE`: the wall clock jumps by FAKE_CLOCK_JUMP_S as soon as that file exists. What has passed since boot
goes on: that is what `adjtime`, a moved virtual machine or a person leaves alone.
`FAKE_ROUND_S`: each round of the event loop takes so much longer, as beside a profiler, a log that waits for a disk, or
work that was never handed to a thread. Only while a load is timed: beside that it would but take longer.
"""

import os
import time
from asyncio.base_events import BaseEventLoop
from typing import Any

if "FAKE_QUIET_S" in os.environ:
    from tasks.wire import connection

    connection.PATIENCE = connection.PATIENCE._replace(quiet_s=float(os.environ["FAKE_QUIET_S"]))

if "FAKE_CLOCK_FILE" in os.environ:
    file, jump_s, true_time = os.environ["FAKE_CLOCK_FILE"], float(os.environ["FAKE_CLOCK_JUMP_S"]), time.time
    time.time = lambda: true_time() + (jump_s if os.path.exists(file) else 0.0)  # noqa: PTH110

if "FAKE_ROUND_S" in os.environ:
    from tasks.timing.timed import ClientWatch

    watched: set[ClientWatch] = set()
    true_round = BaseEventLoop._run_once  # type: ignore[attr-defined]
    true_begin, true_end = ClientWatch.__aenter__, ClientWatch.__aexit__

    def held_up(loop: BaseEventLoop) -> None:
        if watched:
            time.sleep(float(os.environ["FAKE_ROUND_S"]))
        true_round(loop)

    async def begin(watch: ClientWatch) -> ClientWatch:
        watched.add(watch)
        return await true_begin(watch)

    async def end(watch: ClientWatch, *error: Any) -> None:
        watched.discard(watch)
        await true_end(watch, *error)

    BaseEventLoop._run_once = held_up  # type: ignore[attr-defined]
    ClientWatch.__aenter__, ClientWatch.__aexit__ = begin, end  # type: ignore[method-assign, assignment]
