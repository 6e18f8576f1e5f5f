"""An event loop on a clock of its own: it jumps to the next timer, so minutes of waiting take milliseconds.

A rate measured in it is exact, whatever else the machine does; a coroutine that sleeps in `Clock.nap` starves the loop.
"""

import asyncio
import selectors
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


class Clock(selectors.SelectSelector):
    """What the loop waits with: no time passes but here."""

    now_s = 1000.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        ready = super().select(None if timeout is None else 0)  # without a timer it is a thread that is waited for
        if not ready and timeout is not None:
            self.now_s += max(0.0, timeout)
        return ready

    def nap(self, seconds: float) -> None:
        """Let time pass in which the loop does nothing, as if it had no processor."""
        self.now_s += seconds

    def loop(self) -> asyncio.AbstractEventLoop:
        return _Loop(self)


class _Loop(asyncio.SelectorEventLoop):
    def __init__(self, clock: Clock) -> None:
        super().__init__(clock)
        self._time_of = clock

    def time(self) -> float:
        return self._time_of.now_s


def run(main: Callable[[Clock], Coroutine[Any, Any, T]]) -> T:
    clock = Clock()
    with asyncio.Runner(loop_factory=clock.loop) as runner:
        return runner.run(main(clock))
