"""One attempt at one cell: rent a cluster, follow it, take it down."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from functools import partial

from configs.schema import PlannedCell
from configs.visits import Start
from flows.attempts.following import LOG_TAIL_LINES, UNEASY_S, Following
from flows.attempts.records import AttemptRecords
from flows.attempts.taking_back import leave_to_its_cloud
from flows.clusters.protocol import CellJob, Ending, LaunchFailed
from flows.flow_heartbeat import CellTaken
from flows.launch_slots import Slot
from flows.run_context import RunContext
from tasks.runner import todo
from warehouse.ledger import Ledger
from warehouse.outcomes import Ended
from warehouse.placement import Offer, Placement
from warehouse.store import StoreAway, until_back


class AttemptRun:
    """One placement and its end.

    Call `run`; or `adopt`, then `follow` if it says True and `bury` if not. Each of the three leaves nothing running.
    `was_up` says afterwards whether a machine came up far enough to be given its runner.
    """

    def __init__(
        self,
        ledger: Ledger,
        planned: PlannedCell,
        context: RunContext,
        offer: Offer | None,
        *,
        leg: int | None = None,
        placement: Placement | None = None,
        slot: Slot | None = None,
    ) -> None:
        """Read the cell's lease as it stands; rent nothing yet.

        Args:
            ledger: the run.
            planned: the cell and its steps.
            context: what the cells of the run share.
            offer: what to rent; None on this machine.
            leg: of a mirrored design, which way; None: all that is left.
            placement: the one that an earlier flow opened, if any.
            slot: the right to launch, held until the launch is over.
        """
        cell_key = planned.cell.cell_key
        self._ledger, self._planned = ledger, planned
        self._job = CellJob(ledger.store.url, ledger.run_id, cell_key, leg)
        self._context, self._offer, self._slot = context, offer, slot
        self._records = AttemptRecords(ledger, cell_key, context, offer, placement)
        self._cluster = context.site.cluster(cell_key, offer)
        self._following = Following(
            context, self._records, self._cluster, cell_key, is_rented=offer is not None, left=self._left
        )
        self.was_up = False

    def adopt(self) -> bool:
        """Take over the open placement's cluster; False if it no longer runs the cell.

        The runner's own word comes first: SkyPilot may fail to reach a node that measures well.
        """
        if not self._records.is_heard(UNEASY_S) and not self._cluster.adopt():
            return False
        self._records.claim_lease()
        return True

    def bury(self) -> None:
        """Take down what is left of an open placement that no longer works, and close its records."""
        try:
            was_there = self._cluster.is_there()
        except Exception as error:  # it goes down all the same, and its end is estimated
            was_there = False
            self._context.tell(f"{self._planned.cell.label}: whether its machine is still there is not known: {error}")
        self._cluster.down()
        self._records.claim_lease()
        gone = Ending(None, Ended.PREEMPTED, "found gone by the next flow")
        done = self._following.work_done(self._records.runner().closed)
        self._close(done or gone, [], was_there=was_there)

    def run(self, report_commits: Callable[[Ledger], None]) -> Ending:
        """Launch the cell, once no other runner holds it, and follow it to its end.

        Raises:
            CellTaken: another flow took the cell while this one waited, or slept.
            FlowStopped: the flow is asked to end.
        """
        try:
            if self._records.waited_for_owner() and not self._left():
                self._give_back_slot()
                return Ending(None, Ended.LEASE_HELD, "another runner has measured it meanwhile")
            self._context.require_held(self._job.cell_key)
            self._context.clock.require_going()  # choosing a place takes seconds
            self._records.ask()
        except BaseException:
            self._give_back_slot()
            raise
        return self._guarded(report_commits, launch=True)

    def follow(self, report_commits: Callable[[Ledger], None]) -> Ending:
        """Follow an adopted cluster to its end."""
        return self._guarded(report_commits, launch=False)

    def _guarded(self, report_commits: Callable[[Ledger], None], *, launch: bool) -> Ending:
        ending, tail = Ending(None, Ended.LAUNCH_FAILED, "the flow failed"), list[str]()
        is_ours = True
        try:
            ending = self._launched_and_followed(report_commits, launch=launch)
            if ending.how.row.is_failed_try:
                tail = self._cluster.log_tail(LOG_TAIL_LINES)
            if ending.how is Ended.NOTICE:
                self._leave_to_its_cloud()
        except CellTaken:
            is_ours = False  # cluster and records are another flow's now
            raise
        except BaseException as error:
            ending = Ending(None, Ended.STOPPED, f"{type(error).__name__}: {error}")
            is_ours = self._is_ours()
            if is_ours and self._offer is not None:
                with suppress(StoreAway):  # a node that can't be asked goes down all the same
                    self._records.ask_to_stop(str(error))
            raise
        finally:
            if is_ours:
                self._cluster.down()
                self._close(ending, tail, was_there=self._following.was_watched)
            self._context.look.leave(self._ledger.cell_root(self._job.cell_key))
        return ending

    def _leave_to_its_cloud(self) -> None:
        with suppress(StoreAway):  # how old the machine is isn't known then: it goes down at once
            if (story := self._records.story()) is not None:
                leave_to_its_cloud(story, self._cluster.machine_end, self._context.clock, self._context.poll_s)
            self._context.require_held(self._job.cell_key)  # it may have slept meanwhile

    def _is_ours(self) -> bool:
        """Whether no other flow has taken the cell over; a store that can't be asked knows of none."""
        try:
            self._context.require_held(self._job.cell_key)
        except CellTaken:
            return False
        except StoreAway:
            return True
        return True

    def _close(self, ending: Ending, tail: list[str], *, was_there: bool = False) -> None:
        now, machine_end = self._context.clock.now_iso(), self._cluster.machine_end
        self._insist(partial(self._records.close, ending, tail, machine_end, now, was_there=was_there))
        if self._offer is not None:
            self._context.site.ended(self._job.cell_key, self._offer, ending.how.loss, ending.detail)

    def _insist(self, write: Callable[[], None]) -> None:
        """Record what has happened: at once, or as soon as the store is back."""
        until_back(write, partial(self._context.clock.sleep, self._context.poll_s))

    def _launched_and_followed(self, report_commits: Callable[[Ledger], None], *, launch: bool) -> Ending:
        rented_at_s = None
        if launch:
            try:
                rented_at_s = self._cluster.launch(self._job)
            except LaunchFailed as error:
                with suppress(StoreAway):
                    self._context.require_held(self._job.cell_key)  # what is up by that name may be another flow's
                return Ending(None, error.how, str(error))
            finally:
                self._give_back_slot()
        self.was_up = True
        self._insist(partial(self._records.up, self._context.clock.now_iso(), rented_at_s))
        return self._following.to_its_end(report_commits)

    def _left(self) -> list[Start]:
        return todo(self._ledger, self._planned, self._job.leg)

    def _give_back_slot(self) -> None:
        if self._slot is not None:
            self._slot.give_back()
            self._slot = None
