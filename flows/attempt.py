"""One attempt at one cell: a cluster asked for, followed and taken down, and the records that tell of it."""

from __future__ import annotations

import time
from collections.abc import Callable

from flows.clusters.protocol import CellJob, Ending, LaunchFailed
from flows.launch_slots import Slot
from flows.run_context import RunContext
from tasks.exit_code import Exit
from warehouse.clock import moment_s
from warehouse.lease import HEARTBEAT_DEADLINE_S, Attempt, Lease, LeaseHeld, Leases, gone_attempt, owner_name
from warehouse.ledger import Ledger
from warehouse.placement import Offer, Placement, PlacementEnd, PlacementOutcome, Placements

LOG_TAIL_LINES = 30
"""Lines of the node's log kept in the row of a lost attempt."""

SETTLE_S = 3.0
"""How long a runner that has closed its attempt may take to be seen ended by its cluster."""

STOP_GRACE_S = 30.0
"""How long a node may take to flush and close its attempt when asked to stop; it hears of it within 5 s."""

START_DEADLINE_S = 2400.0
"""From submitted to heard of: installing the node's environment and pulling an image of 15 GB."""

BUDGET_EVERY_S = 30.0
"""Pause between two looks at the purse while a node works."""


class AttemptRun:
    """A placement and what becomes of it. `run`, or `adopt` and then `follow`; everything is down afterwards."""

    def __init__(
        self,
        ledger: Ledger,
        cell_key: str,
        context: RunContext,
        offer: Offer | None,
        *,
        placement: Placement | None = None,
        slot: Slot | None = None,
    ) -> None:
        """Nothing is asked for yet.

        Args:
            ledger: the run.
            cell_key: the cell.
            context: what cells of the run share.
            offer: what is rented; none on this machine.
            placement: which an earlier flow opened.
            slot: held until the launch is over.
        """
        self._ledger, self._key, self._context, self._offer = ledger, cell_key, context, offer
        self._leases = Leases(ledger, cell_key)
        self._placements = Placements(ledger, cell_key)
        self._cluster = context.site.cluster(cell_key, offer)
        self._placement, self._slot = placement, slot
        self._before = self._leases.current()

    def adopt(self) -> bool:
        """Whether the opened placement's cluster still runs the cell."""
        if not self._cluster.adopt():
            return False
        lease = self._before
        closed = lease is not None and self._leases.closed(lease.epoch) is not None
        self._before = None if lease is not None and not closed else lease
        return True

    def bury(self) -> None:
        """Nothing of the opened placement works any more: what is left goes down, and the records are closed."""
        self._cluster.down()
        lease = self._before
        if lease is not None and self._leases.closed(lease.epoch) is None:
            self._before = None  # it is this placement's
        self._close(Ending(None, "preempted", "found gone by the next flow"), [])

    def run(self, report_commits: Callable[[], None]) -> Ending:
        """Launch, and follow to the end."""
        try:
            self._wait_for_owner()
        except BaseException:
            self._give_back_slot()
            raise
        if self._offer is not None:
            name = self._context.name_of(self._key)
            self._placement = self._placements.ask(name, self._offer, owner_name(), self._context.clock.now_iso())
        return self._guarded(report_commits, launch=True)

    def follow(self, report_commits: Callable[[], None]) -> Ending:
        """Follow an adopted cluster to the end."""
        return self._guarded(report_commits, launch=False)

    def _guarded(self, report_commits: Callable[[], None], *, launch: bool) -> Ending:
        ending, tail = Ending(None, "launch_failed", "the flow failed"), list[str]()
        try:
            ending = self._launched_and_followed(report_commits, launch=launch)
            worth_reading = ending.loss or ending.code not in (Exit.DONE, Exit.REJECTED)
            if worth_reading and ending.loss not in ("preempted", "autodowned", "no_capacity"):
                tail = self._cluster.log_tail(LOG_TAIL_LINES)
        except BaseException as error:
            ending = Ending(Exit.STOPPED, None, f"{type(error).__name__}: {error}")
            if self._offer is not None:
                self._ask_to_stop(str(error))
            raise
        finally:
            self._cluster.down()
            self._close(ending, tail)
        return ending

    def _launched_and_followed(self, report_commits: Callable[[], None], *, launch: bool) -> Ending:
        rented_at_s = None
        if launch:
            try:
                rented_at_s = self._cluster.launch(CellJob(self._ledger.store.url, self._ledger.run_id, self._key))
            except LaunchFailed as error:
                return Ending(Exit.FAILED, error.kind if self._offer is not None else None, str(error))
            finally:
                self._give_back_slot()
        if self._placement is not None:
            self._placements.up(self._placement.number, self._context.clock.now_iso(), rented_at_s)
        return self._follow(report_commits)

    def _follow(self, report_commits: Callable[[], None]) -> Ending:
        """Until the runner or its cluster has ended, or was silent for too long."""
        clock = self._context.clock
        started = checked = clock.now_s()
        closed_at: float | None = None
        while True:
            lease = self._own_lease()
            closed = None if lease is None else self._leases.closed(lease.epoch)
            heard_s = None if lease is None else self._leases.silence_s(lease)
            # its own word first: asking SkyPilot takes seconds, which are paid for
            if (ending := self._work_done(closed) or self._cluster.look(heard_s)) is not None:
                return self._explained(ending)
            now = clock.now_s()
            if closed is not None:
                closed_at = closed_at or now
                if now - closed_at >= SETTLE_S:
                    code = Exit.FAILED if closed.exit_code is None else closed.exit_code
                    return self._explained(Ending(code, None, closed.reason))
            elif lease is not None and self._leases.is_free(lease):
                # a killed runner frees its lease in the same moment: ask again before calling it silent
                return self._cluster.look(None, insist=True) or Ending(
                    None, "silent", f"no heartbeat for {HEARTBEAT_DEADLINE_S:.0f} s from {lease.owner}"
                )
            elif lease is None and now - started > START_DEADLINE_S:
                return Ending(
                    None, "silent", f"the node runner was not heard of within {START_DEADLINE_S / 60:.0f} min"
                )
            report_commits()
            if now - checked > BUDGET_EVERY_S:
                checked = now
                self._context.check_budget(self._key)
            clock.sleep(self._context.poll_s)

    def _explained(self, ending: Ending) -> Ending:
        """With the attempt's own reason, where the runner got as far as to write one."""
        lease = self._own_lease()
        closed = None if lease is None else self._leases.closed(lease.epoch)
        if ending.loss is not None and (done := self._work_done(closed)) is not None:
            return done  # lost after its work was
        if ending.code == Exit.STOPPED and self._offer is not None:
            return Ending(None, "preempted", "the node was told to leave; what it had finished is kept")
        if ending.code is not None and ending.code < 0:
            return ending._replace(detail=f"the node runner was killed by signal {-ending.code}")
        if closed is not None and closed.reason:
            return ending._replace(detail=closed.reason)
        if ending.detail or ending.code in (Exit.DONE, None):
            return ending
        tail = self._cluster.log_tail(LOG_TAIL_LINES)
        return ending._replace(detail=tail[-1] if tail else f"the node runner ended with code {ending.code}")

    def _work_done(self, closed: Attempt | None) -> Ending | None:
        """The runner's own word, on a rented node, that nothing is left to do: whatever has become of its cluster."""
        if closed is None or self._offer is None or closed.exit_code not in (Exit.DONE, Exit.REJECTED):
            return None
        return Ending(closed.exit_code, None, closed.reason)

    def _give_back_slot(self) -> None:
        if self._slot is not None:
            self._slot.give_back()
            self._slot = None

    def _own_lease(self) -> Lease | None:
        """The lease that this placement's node was granted."""
        lease = self._leases.current()
        return lease if lease != self._before else None

    def _ask_to_stop(self, why: str) -> None:
        """Let the node flush what it has measured; it is taken down in any case."""
        lease = self._own_lease()
        if lease is None or self._leases.closed(lease.epoch) is not None:
            return
        self._leases.ask_to_stop(lease, why or "the flow ends")
        deadline = time.monotonic() + STOP_GRACE_S
        while self._leases.closed(lease.epoch) is None and time.monotonic() < deadline:
            time.sleep(min(1.0, self._context.poll_s))

    def _close(self, ending: Ending, tail: list[str]) -> None:
        """Write down how it went: the attempt where its node could not, and the placement."""
        lease = None if ending.loss == "no_capacity" else self._own_lease()
        if lease is None and self._placement is not None and ending.loss != "no_capacity":
            lease = self._take_number()
        if lease is not None and ending.code not in (Exit.LEASE_HELD, Exit.SUPERSEDED):
            self._close_attempt(lease, ending, tail)
        if self._placement is not None and self._offer is not None:
            attempt, at = None if lease is None else lease.epoch, self._context.clock.now_iso()
            end = PlacementEnd(at=at, outcome=_outcome(ending), detail=ending.detail, attempt=attempt)
            machine = self._cluster.machine_end(moment_s(self._placement.asked_at))
            self._placements.end(self._placement.number, end, machine)
            self._context.site.ended(self._key, self._offer, ending.loss)

    def _take_number(self) -> Lease | None:
        """A number for an attempt whose node never got as far as to take one; none: somebody else has the cell."""
        try:
            return self._leases.acquire(owner_name())
        except LeaseHeld:
            return None

    def _close_attempt(self, lease: Lease, ending: Ending, tail: list[str]) -> None:
        killed = ending.loss is not None or (ending.code is not None and ending.code < 0)
        self._leases.close(gone_attempt(
            lease, self._leases.heartbeat(),
            outcome="stopped" if ending.code == Exit.STOPPED else "lost" if killed else "failed",
            reason=f"{ending.loss}: {ending.detail}" if ending.loss else ending.detail,
            ended_at=self._context.clock.now_iso(),
            price_usd_h=None if self._offer is None else self._offer.price_usd_h, log_tail="\n".join(tail),
        ))  # fmt: skip

    def _wait_for_owner(self) -> None:
        """A live runner has the cell: let it work, it is measuring what we want."""
        while (lease := self._leases.current()) is not None and not self._leases.is_free(lease):
            self._context.clock.sleep(self._context.poll_s)
        self._before = lease


def _outcome(ending: Ending) -> PlacementOutcome:
    if ending.loss is not None:
        return ending.loss
    if ending.code == Exit.STOPPED:
        return "stopped"
    return "done" if ending.code in (Exit.DONE, Exit.REJECTED) else "job_failed"
