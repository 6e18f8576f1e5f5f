"""The time as flows see it: one clock that can be stopped, so that no thread of a flow sleeps through its end."""

from __future__ import annotations

import threading

from warehouse.ledger.clock import Clock


class FlowStopped(Exception):
    """The flow is asked to end; clusters go down on the way out."""


class StoppableClock(Clock):
    """This machine's clock, and a sleep that `stop` ends."""

    def __init__(self) -> None:
        self._stopped = threading.Event()
        self._why = ""

    def sleep(self, seconds: float) -> None:
        """Pause for so many seconds, at least 0. FlowStopped, if `stop` was called, ends it."""
        self._stopped.wait(max(0.0, seconds))
        self.require_going()

    def require_going(self) -> None:
        """Go on only while nobody has asked the flow to end. Raises FlowStopped: `stop` was called."""
        if self.is_stopped:
            raise FlowStopped(self._why)

    @property
    def is_stopped(self) -> bool:
        """Whether `stop` was called."""
        return self._stopped.is_set()

    def stop(self, why: str) -> None:
        """Wake every sleeper with `FlowStopped`; of several reasons, the first stands."""
        self._why = self._why or why
        self._stopped.set()
