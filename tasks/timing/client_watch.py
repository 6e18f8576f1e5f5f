"""How late the client's own timer wakes during a window: a client without a processor times its machine, no engine."""

from __future__ import annotations

import asyncio
from pathlib import Path
from types import TracebackType
from typing import NamedTuple

from tasks.guards.steadiness import CALM_LATE_MS

TICK_S = 0.01
"""How often the timer wakes: a tenth of what starves a window of a tenth of a second; about .3 % of a processor."""


class Lateness(NamedTuple):
    """The timer's largest lateness in ms; the share of the time, 0 to 1, in which this thread waited for a processor.

    `share` is None where the kernel keeps no such count. `moments` is how often the timer woke later than a calm
    machine's does.
    """

    late_ms: float
    share: float | None
    moments: int = 0


class ClientWatch:
    """Watches the event loop while it is entered; `lateness` is known afterwards.

    What the loop itself does meanwhile counts as lateness, too: an answer waits for it just as long.
    """

    def __init__(self) -> None:
        self.lateness = Lateness(0.0, None)
        self._late_s, self._moments = 0.0, 0
        self._due_s = 0.0

    async def __aenter__(self) -> ClientWatch:
        self._loop = asyncio.get_running_loop()
        self._begun_s, self._waited_s = self._loop.time(), _waited_for_processor_s()
        self._due_s = self._begun_s + TICK_S
        self._ticking = asyncio.create_task(self._tick())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ticking.cancel()
        now_s, waited_s = self._loop.time(), _waited_for_processor_s()
        self._woke(now_s - self._due_s)  # the last tick may be overdue
        share = None
        if waited_s is not None and self._waited_s is not None and now_s > self._begun_s:
            share = (waited_s - self._waited_s) / (now_s - self._begun_s)
        self.lateness = Lateness(1000 * self._late_s, share, self._moments)

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(self._due_s - self._loop.time())
            now_s = self._loop.time()
            self._woke(now_s - self._due_s)
            self._due_s = now_s + TICK_S

    def _woke(self, late_s: float) -> None:
        self._late_s = max(self._late_s, late_s)
        self._moments += 1000 * late_s > CALM_LATE_MS


def _waited_for_processor_s() -> float | None:
    """Seconds that this thread was ready to run and had to wait, since it began; None: the kernel doesn't count it.

    Source: Documentation/scheduler/sched-stats.rst of Linux, /proc/<pid>/schedstat, second field, nanoseconds.
    """
    try:
        return int(Path("/proc/thread-self/schedstat").read_text(encoding="ascii").split()[1]) / 1e9
    except FileNotFoundError:
        return None
