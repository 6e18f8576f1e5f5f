"""What the flow records of one attempt: the row that its node could not write, and the placement that is billed."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import NamedTuple

from flows.clusters.protocol import Ending
from flows.run_context import RunContext
from warehouse.ledger.claims import estimated_end_s
from warehouse.ledger.clock import iso_of, moment_s
from warehouse.ledger.commits import Ledger
from warehouse.ledger.lease import Attempt, Heartbeat, Lease, LeaseHeld, Leases, gone_attempt
from warehouse.ledger.outcomes import Ended
from warehouse.ledger.owner import owner_name
from warehouse.ledger.placement import MachineEnd, Offer, Placement, PlacementEnd, Placements, PlacementStory

STOP_GRACE_S = 30.0  # for a node that is asked to stop, and sees that within 5 s, to flush and close its attempt

MachineWord = Callable[[float], MachineEnd | None]
"""What the cloud says of the end of the machine launched since a moment (see `Cluster.machine_end`)."""


class RunnerSeen(NamedTuple):
    """What the store says of a placement's node runner; all None until it has been heard of."""

    lease: Lease | None = None
    closed: Attempt | None = None
    silence_s: float | None = None


class AttemptRecords:
    """Reads what the node runner wrote, and writes what it could not."""

    def __init__(
        self, ledger: Ledger, cell_key: str, context: RunContext, offer: Offer | None, placement: Placement | None
    ) -> None:
        """Read the cell's current lease; `placement` is one that an earlier flow opened."""
        self._ledger, self._key, self._context, self._offer = ledger, cell_key, context, offer
        self._leases = Leases(ledger, cell_key)
        self._placements = Placements(ledger, cell_key)
        self._placement = placement
        self._found = self._leases.current()
        self._epoch = 1 if self._found is None else self._found.epoch + 1

    def claim_lease(self) -> None:
        """Treat the lease found at the start as the open placement's, unless its attempt was over before that."""
        lease = self._found
        if lease is not None and (self._leases.closed(lease.epoch) is None or self._is_of_placement(lease)):
            self._epoch = lease.epoch

    def is_heard(self, within_s: float) -> bool:
        """Whether the open placement's runner was heard lately; the beat of an earlier machine's is not its own."""
        lease = self._found
        if lease is None or not self._is_of_placement(lease) or self._leases.is_free(lease):
            return False
        beat, silence_s = self._leases.heartbeat(), self._leases.silence_s(lease)
        return beat is not None and beat.attempt == lease.epoch and silence_s is not None and silence_s <= within_s

    def _is_of_placement(self, lease: Lease) -> bool:
        """Whether a lease was granted since the placement was asked for: its runner's, that has ended unseen."""
        return self._placement is not None and moment_s(lease.granted_at) >= moment_s(self._placement.asked_at)

    def waited_for_owner(self) -> bool:
        """Wait while a live runner holds the cell: it measures what we want. Returns whether there was one."""
        since_s, waited = self._context.clock.now_s(), False
        while (lease := self._leases.current()) is not None and not self._leases.is_free(lease):
            waited = True
            self._context.pause(since_s)
        self._epoch = 1 if lease is None else lease.epoch + 1
        return waited

    def ask(self) -> None:
        """Record that a machine is about to be rented; nothing is recorded for this machine."""
        if self._offer is not None:
            name = self._context.name_of(self._key)
            now, idle_s = self._context.clock.now_iso(), self._context.idle_s
            alone_s = self._context.unattended_s.get(self._offer.cloud)
            self._placement = self._placements.ask(name, self._offer, owner_name(), now, idle_s, alone_s)

    def up(self, at: str, rented_at_s: float | None) -> None:
        """Record when the runner was submitted; the cloud bills from `rented_at_s` (since 1970; None: unknown)."""
        if self._placement is not None:
            self._placements.up(self._placement.number, at, rented_at_s)

    def runner(self, looked: Ledger | None = None) -> RunnerSeen:
        """The runner's lease, its closed attempt and its seconds of silence: read anew, or as `looked` at."""
        leases = self._leases if looked is None else Leases(looked, self._key)
        lease = self._own_lease(leases)
        if lease is None:
            return RunnerSeen()
        return RunnerSeen(lease, leases.closed(lease.epoch), leases.silence_s(lease))

    def heartbeat(self, lease: Lease, looked: Ledger) -> Heartbeat:
        """What the lease's runner last said, as `looked` at; before its first heartbeat it is starting."""
        beat = Leases(looked, self._key).heartbeat()
        if beat is not None and beat.attempt == lease.epoch:
            return beat
        return Heartbeat(attempt=lease.epoch, phase="starting", at="")

    def is_free(self, lease: Lease, looked: Ledger | None = None) -> bool:
        """Whether the lease's runner is gone or has been silent for too long: read anew, or as `looked` at."""
        return (self._leases if looked is None else Leases(looked, self._key)).is_free(lease)

    def ask_to_stop(self, why: str, grace_s: float) -> None:
        """Ask the node to flush what it has measured, and wait so long until it has; it is taken down in any case."""
        lease = self._own_lease()
        if lease is None or self._leases.closed(lease.epoch) is not None:
            return
        self._leases.ask_to_stop(lease, why or "the flow ends")
        deadline = time.monotonic() + grace_s
        while self._leases.closed(lease.epoch) is None and time.monotonic() < deadline:
            time.sleep(min(1.0, self._context.poll_s))

    def close(self, ending: Ending, tail: list[str], machine_end: MachineWord, at: str, was_there: bool) -> None:
        """Record how the attempt ended, where its node could not, and how the placement did.

        `tail`: last lines of the node's log. `at`: when the cluster was down (ISO 8601). `was_there`: its
        machine was there until then; else nobody may have seen it end.
        """
        word = self._machines_word(machine_end) if ending.how.was_rented else None
        is_known = was_there or (word is not None and word.at_s is not None)
        ended_at = at
        if not is_known and ending.how.was_rented and (story := self.story()) is not None:
            ended_at = iso_of(min(moment_s(at), estimated_end_s(self._ledger, story)))  # all were silent before that
        lease = self._lease_to_close(ending.how)
        if lease is not None:
            self.close_attempt(lease, ending, tail, ended_at)
        if self._placement is None:
            return
        number = None if lease is None else lease.epoch
        end = PlacementEnd(
            at=ended_at,
            outcome=ending.how.row.recorded,
            detail=ending.detail,
            attempt=self._epoch if ending.how is Ended.SUPERSEDED else number,
            estimated=ended_at != at,
        )
        self._placements.end(self._placement.number, end, word)

    def close_attempt(self, lease: Lease, ending: Ending, tail: list[str], ended_at: str) -> None:
        """Record how a lease's attempt ended (ISO 8601), unless its runner or somebody else has."""
        is_lost = ending.how.row.outcome == "lost"
        self._leases.close(
            gone_attempt(
                lease,
                self._leases.heartbeat(),
                ending.how,
                reason=f"{ending.how}: {ending.detail}" if is_lost else ending.detail,
                ended_at=max(ended_at, lease.granted_at),
                price_usd_h=None if self._offer is None else self._offer.price_usd_h,
                log_tail="\n".join(tail),
            )
        )

    def _machines_word(self, machine_end: MachineWord) -> MachineEnd | None:
        """What the cloud says of the placement's machine; that there was none is not believed of one that came up."""
        word = None if self._placement is None else machine_end(moment_s(self._placement.asked_at))
        if word is None or not word.is_of_none:
            return word
        story = self.story()
        return word if story is not None and story.up is None else None

    def story(self) -> PlacementStory | None:
        """What is recorded of the placement; None if it is over, or another came after it."""
        story = self._placements.open()
        ours = self._placement
        return story if story is not None and ours is not None and story.asked.number == ours.number else None

    def _own_lease(self, leases: Leases | None = None) -> Lease | None:
        """The lease that this placement's node was granted, or the one that took over from it; None until then."""
        lease = (leases or self._leases).current()
        return None if lease is None or lease.epoch < self._epoch else lease

    def _lease_to_close(self, how: Ended) -> Lease | None:
        """The lease of the attempt to close, taken now if the node never got one.

        None if no row is owed: nothing was rented, somebody else has the cell, or its runner said so itself. On this
        machine, which is not billed, none is owed where nothing went wrong either.
        """
        if how.row.outcome is None or how is Ended.SUPERSEDED:
            return None
        lease = self._own_lease()
        is_owed = self._placement is not None or how.row.outcome in ("failed", "lost")
        if lease is not None or not is_owed:
            return lease
        try:
            return self._leases.acquire(owner_name())
        except LeaseHeld:
            return None
