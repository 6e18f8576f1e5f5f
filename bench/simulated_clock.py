"""A clock that jumps: once every thread of the simulation sleeps, it moves on to when the first one wakes."""

from __future__ import annotations

import heapq
import itertools
import threading
from collections.abc import Callable, Sequence

from flows.clock import StoppableClock


class SimulatedClock(StoppableClock):
    """Runs threads and callbacks one at a time, in the order of their moments: one seed always gives one night."""

    def __init__(self, start_s: float) -> None:
        """Begin at `start_s`, seconds since 1970."""
        super().__init__()
        self._now_s = start_s
        self._due: list[tuple[float, int, Callable[[], None]]] = []
        self._order = itertools.count()
        self._woken = False
        self._living = 0
        self._failures: list[BaseException] = []

    def now_s(self) -> float:
        """Simulated seconds since 1970."""
        return self._now_s

    def sleep(self, seconds: float) -> None:
        """Let all others run for so many simulated seconds; it never raises `FlowStopped`."""
        awake = threading.Event()
        self._wake_at(self._now_s + max(0.0, seconds), awake)
        self._go_on()
        awake.wait()

    def at(self, when_s: float, call: Callable[[], None]) -> None:
        """Call something at a moment (simulated seconds since 1970), while no thread runs."""
        heapq.heappush(self._due, (when_s, next(self._order), call))

    def run(self, workers: Sequence[Callable[[], None]]) -> None:
        """Run workers, each in a thread of its own, to their ends; the first failure of any is raised here.

        What is due after the last worker's end is never called.
        """
        threads = []
        self._living = len(workers)
        for worker in workers:
            awake = threading.Event()
            self._wake_at(self._now_s, awake)
            threads.append(threading.Thread(target=self._live, args=(worker, awake), daemon=True))
        for thread in threads:
            thread.start()
        self._go_on()
        for thread in threads:
            thread.join()
        if self._failures:
            raise self._failures[0]

    def _live(self, worker: Callable[[], None], awake: threading.Event) -> None:
        awake.wait()
        try:
            worker()
        except BaseException as error:
            self._failures.append(error)
        self._living -= 1
        self._go_on()

    def _wake_at(self, when_s: float, sleeper: threading.Event) -> None:
        def wake() -> None:
            self._woken = True
            sleeper.set()

        self.at(when_s, wake)

    def _go_on(self) -> None:
        """Jump from moment to moment until a thread is awake; only the one that stops running calls this."""
        self._woken = False
        while self._living and not self._woken:
            self._now_s, _, call = heapq.heappop(self._due)
            call()
