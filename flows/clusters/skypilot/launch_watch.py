"""Cuts a launch short: its machine was taken away, it takes too long, its money is spent, or its flow ends.

SkyPilot waits for a machine's ssh for ten minutes, and for an image or a file without limit, and asks nobody meanwhile.
So we ask the cloud, the clock and the budget. When one says so, the machine is ended at the cloud, and meanwhile
SkyPilot's request is cancelled. Nobody waits for a server that does not hear. Where the cloud can't be asked (no
credentials, not AWS), SkyPilot ends the machine afterwards. The cloud also says since when the machine costs money.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import wait
from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple

from flows.clock import FlowStopped
from flows.clusters.answers import Answer, NoAnswer, answer_of, asked
from flows.clusters.protocol import LaunchFailed
from flows.telling import once_in_a_row
from warehouse.ledger.outcomes import Ended
from warehouse.ledger.placement import Offer
from warehouse.ledger.store import StoreAway

if TYPE_CHECKING:
    from flows.clusters.clouds.account import Instance
    from flows.clusters.clouds.aws import ClusterInstances

LOG = logging.getLogger(__name__)
LOOK_EVERY_S = 5.0  # pause between two questions to the cloud: one call of its API
ALIVE = ("pending", "running")  # EC2's states of a machine that is there, or will be
UNHEARD_S = 60.0  # how long SkyPilot may take to end a launch that was cut short, and to hear that it shall
LOOKS_GONE = 2  # how often in a row the machine must be missing: a cloud's list may lag behind its own changes


class LaunchBounds(NamedTuple):
    """What a launch may take.

    `longest_h`: hours of waiting for it (`cloud.launch_h`). `over` says why no money is left, None to go on. `holds`:
    whether the cell is still this flow's; else a cluster of its name may be another's.
    """

    longest_h: float
    over: Callable[[], str | None]
    holds: Callable[[], bool]


class LaunchWatch:
    """Watches one launch. Afterwards `cut` is the error that it was cut short with, if it was.

    `rented_at_s`: since when the machine costs money, seconds since 1970; None if the cloud did not say.
    """

    def __init__(
        self,
        cluster: str,
        offer: Offer | None,
        bounds: LaunchBounds,
        stopped: Callable[[], bool],
        cancel: Callable[[], None],
    ) -> None:
        """`cancel` ends SkyPilot's request as far as it can now; it is called again until the launch is over."""
        self.cut: LaunchFailed | FlowStopped | None = None
        self.rented_at_s: float | None = None
        self._cluster, self._offer, self._bounds, self._stopped = cluster, offer, bounds, stopped
        self._cancel = cancel
        self._begun_s, self._cut_s = time.monotonic(), 0.0
        self._over = threading.Event()
        self._machines: ClusterInstances | None = None
        self._before: dict[str, Instance] | None = None  # an earlier attempt's machines, which have the same name
        self._missing = 0
        self._mortal: set[str] = set()
        self._told = once_in_a_row(LOG.warning)

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Watch until the block ends."""
        from flows.clusters.clouds.aws import machines_of

        self._machines = machines_of(self._cluster, self._offer)
        self._before = None if self._machines is None else self._machines.known()
        thread = threading.Thread(target=self._watch, name="launch-watch", daemon=True)
        thread.start()
        try:
            yield
            if self._before is not None:
                launched = [machine.launched_at_s for machine in self._launched() or []]
                # the first: a machine that SkyPilot itself replaced was paid for, too
                self.rented_at_s = min((at_s for at_s in launched if at_s is not None), default=None)
        finally:
            self._over.set()
            thread.join()

    def result_of(self, launch: Callable[[], Answer]) -> Answer:
        """What the launch returns or raises; NoAnswer: it was cut short, and SkyPilot has not ended it."""
        launching = asked(launch)
        while not wait([launching], LOOK_EVERY_S).done:
            if self.cut is not None and time.monotonic() - self._cut_s > UNHEARD_S:
                raise NoAnswer(f"SkyPilot goes on with a launch that was cut short {UNHEARD_S:.0f} s ago")
        return launching.result()

    def _watch(self) -> None:
        while not self._over.wait(LOOK_EVERY_S):
            try:
                self._look()
            except Exception as error:  # whatever it is, the bounds are looked at again
                said = f"{type(error).__name__}: {error}"
                self._told(f"the watch over the launch of {self._cluster} goes on after {said}")

    def _launched(self) -> list[Instance] | None:
        """Machines that this launch has rented, as the cloud says; None: it did not say, now or before the launch."""
        known = None if self._machines is None or self._before is None else self._machines.known()
        if known is None or self._before is None:
            return None
        return [machine for instance_id, machine in known.items() if instance_id not in self._before]

    def _look(self) -> None:
        if self.cut is None:
            # a cloud that does not answer must not keep a flow that ends
            cut = FlowStopped("the flow ends") if self._stopped() else self._why_cut(self._launched())
            self._cut_s, self.cut = time.monotonic(), cut
        if self.cut is None:
            return
        cancelling = asked(self._cancel)  # meanwhile: each of the two may take its time, or be gone
        try:
            is_ours = self._bounds.holds()
        except StoreAway:
            is_ours = False  # perhaps; asked again at the next look
        if self._machines is not None and is_ours:
            self._machines.terminate()
        answer_of(cancelling, UNHEARD_S)
        if self._machines is not None and is_ours:
            self._machines.terminate()  # what was rented between the two

    def _why_cut(self, ours: list[Instance] | None) -> LaunchFailed | FlowStopped | None:
        where, longest_h = self._offer.where if self._offer else self._cluster, self._bounds.longest_h
        # a rented machine's own timer powers it off: on demand, it would keep its disk then, and pay for it
        lasting = {each.instance_id for each in ours or [] if not each.spot and each.state in ALIVE} - self._mortal
        if self._machines is not None and lasting and self._machines.end_when_off(sorted(lasting)):
            self._mortal |= lasting
        if self._is_gone(ours):
            return LaunchFailed(f"{where}: the machine was taken away while it was set up", Ended.PREEMPTED)
        if time.monotonic() - self._begun_s > longest_h * 3600:
            return LaunchFailed(f"{where}: not launched within {longest_h:g} h (cloud.launch_h): cut short")
        try:
            over = self._bounds.over()
        except StoreAway:
            return None  # it says nothing about the money; the deadline holds all the same
        return None if over is None else LaunchFailed(over, Ended.STOPPED)

    def _is_gone(self, ours: list[Instance] | None) -> bool:
        if ours is None:
            return False  # the cloud did not answer, which says nothing about the machine
        gone = bool(ours) and not any(machine.state in ALIVE for machine in ours)
        self._missing = self._missing + 1 if gone else 0
        return self._missing >= LOOKS_GONE
