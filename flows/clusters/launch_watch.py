"""Noticing that a machine is taken away while SkyPilot still waits for its ssh, which it does for ten minutes.

SkyPilot asks nobody during that time, so the cloud is asked beside it; its request is cancelled once the machine that
was there is gone. Where the cloud can't be asked (no credentials, not AWS), SkyPilot's own patience decides.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from warehouse.placement import Offer

LOOK_EVERY_S = 5.0
"""Pause between two questions to the cloud: one call of its API."""

LOOKS_GONE = 2
"""How often in a row the machine must be missing: a cloud's list may lag behind its own changes."""


class LaunchWatch:
    """Watches one launch. `vanished` says afterwards whether it was cut short."""

    def __init__(self, cluster: str, offer: Offer | None, cancel: Callable[[], None]) -> None:
        """Nothing is watched yet.

        Args:
            cluster: name of the cluster.
            offer: what is being rented.
            cancel: cancels SkyPilot's request.
        """
        self.vanished = False
        self._cluster, self._offer, self._cancel = cluster, offer, cancel
        self._over = threading.Event()

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Watch until the block ends."""
        if self._offer is None or self._offer.cloud != "aws" or self._offer.region is None:
            yield
            return
        thread = threading.Thread(target=self._watch, args=(self._offer.region,), name="launch-watch", daemon=True)
        thread.start()
        try:
            yield
        finally:
            self._over.set()
            thread.join()

    def _watch(self, region: str) -> None:
        from flows.reaper.aws import living

        was_there, missing = False, 0
        while not self._over.wait(LOOK_EVERY_S):
            there = living(self._cluster, region)
            if there is None:
                continue  # the cloud did not answer: not a word about the machine
            was_there = was_there or there > 0
            missing = missing + 1 if was_there and there == 0 else 0
            if missing >= LOOKS_GONE:
                self.vanished = True
                self._cancel()
                return
