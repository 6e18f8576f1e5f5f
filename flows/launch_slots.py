"""How many launches may run at once: an API server and a cloud's own API are easily overwhelmed.

`cloud.launch_slots` says how many. SkyPilot's local API server (0.14.1) runs each as a process of 0.3 to 0.4 GB that
waits most of the time: four that it keeps, and up to 1024 that it starts for a burst, however many cores there are.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from flows.clock import StoppableClock

LOOK_EVERY_S = 1.0
"""Pause between two looks for a free slot."""


class Slot:
    """The right to launch one cluster; giving it back twice does no harm."""

    def __init__(self, semaphore: threading.Semaphore) -> None:
        """Hold a `semaphore` that is already acquired."""
        self._semaphore: threading.Semaphore | None = semaphore
        self._kept = False

    def give_back(self) -> None:
        """Free the slot for another launch."""
        if self._semaphore is not None:
            self._semaphore.release()
            self._semaphore = None

    def keep(self) -> Slot:
        """Keep the slot beyond the block of `unless_kept`."""
        self._kept = True
        return self

    @contextmanager
    def unless_kept(self) -> Iterator[None]:
        """Give the slot back at the end of the block unless it was kept; after an error, always."""
        try:
            yield
        except BaseException:
            self.give_back()
            raise
        if not self._kept:
            self.give_back()


class Slots:
    """All slots of one flow. Waiting goes through the flow's clock, so that a stopped flow does not wait."""

    def __init__(self, count: int) -> None:
        self._semaphore = threading.BoundedSemaphore(count)

    def take(self, clock: StoppableClock) -> Slot:
        """Wait for a free slot and take it.

        Raises:
            FlowStopped: the flow is asked to end.
        """
        while not self._semaphore.acquire(blocking=False):
            clock.sleep(LOOK_EVERY_S)
        return Slot(self._semaphore)
