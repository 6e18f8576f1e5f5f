"""Notice that a machine is taken away while SkyPilot still waits for its ssh, which it does for ten minutes.

SkyPilot asks nobody during that time, so we ask the cloud, and cancel SkyPilot's request once the machine that was
there is gone. Where the cloud can't be asked (no credentials, not AWS), SkyPilot's own patience decides. The cloud also
says since when the machine costs money.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from warehouse.placement import Offer

if TYPE_CHECKING:
    from flows.clusters.clouds.account import Instance
    from flows.clusters.clouds.aws import Machines

LOOK_EVERY_S = 5.0
"""Pause between two questions to the cloud: one call of its API."""

ALIVE = ("pending", "running")
"""EC2's states of a machine that is there, or will be."""

LOOKS_GONE = 2
"""How often in a row the machine must be missing: a cloud's list may lag behind its own changes."""


class LaunchWatch:
    """Watches one launch.

    Afterwards `vanished` and `was_stopped` say why it was cut short, if it was, and `rented_at_s` since when the
    machine costs money (seconds since 1970; None if the cloud did not say).
    """

    def __init__(
        self, cluster: str, offer: Offer | None, stopped: Callable[[], bool], cancel: Callable[[], None]
    ) -> None:
        """Prepare a watch; `watching` begins it.

        Args:
            cluster: name of the cluster.
            offer: what is being rented.
            stopped: whether the flow is asked to end.
            cancel: cancels SkyPilot's request.
        """
        self.vanished = self.was_stopped = False
        self.rented_at_s: float | None = None
        self._cluster, self._offer, self._stopped, self._cancel = cluster, offer, stopped, cancel
        self._over = threading.Event()
        self._missing = 0

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Watch until the block ends."""
        from flows.clusters.clouds.aws import machines_of

        machines = machines_of(self._cluster, self._offer)
        before = machines.known() if machines is not None else None  # an earlier attempt's machines have the same name
        thread = threading.Thread(target=self._watch, args=(machines, before), name="launch-watch", daemon=True)
        thread.start()
        try:
            yield
            if machines is not None and before is not None:
                launched = [machine.launched_at_s for machine in _new(machines.known() or {}, before)]
                # the first: a machine that SkyPilot itself replaced was paid for, too
                self.rented_at_s = min((at_s for at_s in launched if at_s is not None), default=None)
        finally:
            self._over.set()
            thread.join()

    def _watch(self, machines: Machines | None, before: dict[str, Instance] | None) -> None:
        while not self._over.wait(LOOK_EVERY_S):
            known = machines.known() if machines is not None and before is not None else None
            self.was_stopped = self._stopped()
            self.vanished = not self.was_stopped and self._is_gone(known, before or {})
            if self.was_stopped or self.vanished:
                self._cancel()
                return

    def _is_gone(self, known: dict[str, Instance] | None, before: dict[str, Instance]) -> bool:
        """Whether machines were made for this launch, and none of them lives."""
        if known is None:
            return False  # the cloud did not answer, which says nothing about the machine
        ours = _new(known, before)
        gone = bool(ours) and not any(machine.state in ALIVE for machine in ours)
        self._missing = self._missing + 1 if gone else 0
        return self._missing >= LOOKS_GONE


def _new(known: dict[str, Instance], before: dict[str, Instance]) -> list[Instance]:
    """Machines that were made for this launch."""
    return [machine for instance_id, machine in known.items() if instance_id not in before]
