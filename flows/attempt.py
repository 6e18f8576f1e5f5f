"""One attempt at one cell: rent a cluster, follow its runner to the end, take it down."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import ExitStack, suppress
from functools import partial

from configs.schema import PlannedCell
from configs.visits import Start
from flows.attempt_records import STOP_GRACE_S, AttemptRecords, RunnerSeen
from flows.clock import FlowStopped
from flows.clusters.protocol import CellJob, Ending, LaunchFailed
from flows.flow_heartbeat import CellTaken
from flows.forecast.estimates import GPU_LAUNCH_S
from flows.run_context import RunContext
from flows.standstill import Standstill
from tasks.host.bounds import BOUNDS
from tasks.runner import todo
from warehouse.dataset.bill import FREE_IF_INTERRUPTED_WITHIN_S, rented_s
from warehouse.ledger.claims import FLOW_DEADLINE_S
from warehouse.ledger.clock import moment_s
from warehouse.ledger.commits import Ledger
from warehouse.ledger.lease import HEARTBEAT_DEADLINE_S, Attempt
from warehouse.ledger.looks import pause_s
from warehouse.ledger.outcomes import Ended
from warehouse.ledger.placement import Offer, Placement, PlacementStory
from warehouse.ledger.store import StoreAway, until_back

LOG_TAIL_LINES = 30  # lines of the node's log kept in the row of a lost attempt
SETTLE_S = 3.0  # how long a cluster may take to notice that its runner, which has closed its attempt, has ended
BUDGET_EVERY_S = 30.0  # pause between two budget checks while a node works
TAKEN_WITHIN_S = 150.0  # EC2 takes a machine back two minutes after its notice (user guide); the rest is for clocks
UNEASY_S = 20.0  # after this much silence a runner is polled as often as at first; four heartbeats


class _Watch:
    """What is remembered from look to look: moments by the flow's clock, s."""

    def __init__(self, now_s: float, shortest_s: float, longest_s: float) -> None:
        self.started_s = self.checked_s = self.looked_s = self._news_s = now_s
        self.closed_s: float | None = None
        self._epoch: int | None = None
        self._shortest_s, self._longest_s = shortest_s, longest_s
        self.pause_s = shortest_s

    def saw(self, seen: RunnerSeen, now_s: float) -> None:
        """Choose the pause until the next look: a runner that is new, silent or done is polled often."""
        epoch = None if seen.lease is None else seen.lease.epoch
        is_uneasy = epoch is not None and (seen.silence_s is None or seen.silence_s > UNEASY_S)
        if epoch != self._epoch or is_uneasy or seen.closed is not None:
            self._news_s = now_s
        self._epoch = epoch
        self.pause_s = pause_s(now_s - self._news_s, self._shortest_s, self._longest_s)


class AttemptRun:
    """One placement and its end.

    Call `run`; or `adopt`, then `follow` if it says True and `bury` if not. Each of the three leaves nothing running.
    `was_up` says afterwards whether a machine came up far enough to be given its runner. Without an `offer` it runs on
    this machine, without a `leg` all that is left is measured. `placement` is one that an earlier flow opened.
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
    ) -> None:
        """Read the cell's lease as it stands; rent nothing yet."""
        cell_key = planned.cell.cell_key
        self._ledger, self._planned = ledger, planned
        self._job = CellJob(ledger.store.url, ledger.run_id, cell_key, leg)
        self._context, self._offer = context, offer
        self.slot = ExitStack()  # held until the launch is over
        self._records = AttemptRecords(ledger, cell_key, context, offer, placement)
        self._cluster = context.site.cluster(cell_key, offer)
        self._standstill = Standstill(planned)
        self._was_watched = True  # nothing of it was slept through
        self.was_up = False

    def adopt(self) -> bool:
        """Take over the placement's cluster if it still runs the cell; its runner, if heard of, is believed first."""
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
        done = self._work_done(self._records.runner().closed)
        self._close(done or gone, [], was_there=was_there)

    def run(self, report_commits: Callable[[Ledger], None]) -> Ending:
        """Launch the cell, once no other runner holds it, and follow it to its end. Raises CellTaken, FlowStopped."""
        with self.slot.pop_all() as slot:  # given back here unless a launch begins
            if self._records.waited_for_owner() and not self._todo():
                return Ending(None, Ended.LEASE_HELD, "another runner has measured it meanwhile")
            self._context.require_held(self._job.cell_key)
            self._context.clock.require_going()  # choosing a place takes seconds
            self._records.ask()
            self.slot = slot.pop_all()
        return self.follow(report_commits, launch=True)

    def follow(self, report_commits: Callable[[Ledger], None], *, launch: bool = False) -> Ending:
        """Follow a cluster to its end: one that was adopted, or is launched first."""
        ending, tail = Ending(None, Ended.LAUNCH_FAILED, "the flow failed"), list[str]()
        is_ours = True
        stopped_by: BaseException | None = None
        try:
            ending = self._launched_and_followed(report_commits, launch=launch)
            if ending.how.row.is_failed_try:
                tail = self._cluster.log_tail(LOG_TAIL_LINES)
            if ending.how is Ended.NOTICE:
                with suppress(StoreAway):  # how old the machine is isn't known then: it goes down at once
                    if (story := self._records.story()) is not None:
                        self._leave_to_its_cloud(story)
                    self._context.require_held(self._job.cell_key)  # it may have slept meanwhile
        except CellTaken:
            is_ours = False  # cluster and records are another flow's now
            raise
        except BaseException as error:
            ending = Ending(None, Ended.STOPPED, f"{type(error).__name__}: {error}")
            is_ours, stopped_by = self._is_ours(), error
            raise
        finally:
            if is_ours:
                self._down(stopped_by)
                self._close(ending, tail, was_there=self._was_watched)
            self._context.look.leave(self._ledger.cell_root(self._job.cell_key))
        return ending

    def _down(self, stopped_by: BaseException | None) -> None:
        """Take it down. A node that may still work flushes first; where the flow is asked to end, meanwhile.

        Prefect kills a cancelled flow after 30 s, and a cluster whose `down` was not sent by then stays up.
        """
        if stopped_by is None or self._offer is None:
            self._cluster.down()
            return
        grace_s = 0.0 if isinstance(stopped_by, FlowStopped) else STOP_GRACE_S
        with ThreadPoolExecutor(1) as pool:
            asked = pool.submit(self._records.ask_to_stop, str(stopped_by), grace_s)
            if grace_s:
                wait([asked])
            self._cluster.down()
        with suppress(StoreAway):  # a node that can't be asked goes down all the same
            asked.result()

    def _is_ours(self) -> bool:
        """Whether no other flow has taken the cell over; a store that can't be asked knows of none."""
        try:
            with suppress(StoreAway):
                self._context.require_held(self._job.cell_key)
        except CellTaken:
            return False
        return True

    def _close(self, ending: Ending, tail: list[str], *, was_there: bool) -> None:
        now, machine_end = self._context.clock.now_iso(), self._cluster.machine_end
        self._insist(partial(self._records.close, ending, tail, machine_end, now, was_there))
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
                self.slot.close()
        self.was_up = True
        self._insist(partial(self._records.up, self._context.clock.now_iso(), rented_at_s))
        return self._followed(report_commits)

    def _followed(self, report_commits: Callable[[Ledger], None]) -> Ending:
        """Look until the runner or its cluster has ended, or has been silent for too long."""
        context, clock = self._context, self._context.clock
        watch = _Watch(clock.now_s(), context.poll_s, context.longest_poll_s)
        while True:
            now_s = clock.now_s()
            if now_s - watch.looked_s > FLOW_DEADLINE_S:  # it slept: what became of the machine meanwhile, nobody saw
                self._was_watched = False
            watch.looked_s = now_s
            # a store that is away says so itself; without its word nobody takes down a node that may measure well
            with suppress(StoreAway):
                if (ending := self._looked(watch, report_commits)) is not None:
                    return ending
            clock.sleep(watch.pause_s)

    def _work_done(self, closed: Attempt | None) -> Ending | None:
        """The ending that a rented node's runner wrote itself, if nothing its cluster says can change it; else None."""
        if closed is None or self._offer is None:
            return None
        ending = _as_closed(closed)
        return ending if ending.how in (Ended.DONE, Ended.REJECTED, Ended.NOTICE) else None

    def _looked(self, watch: _Watch, report_commits: Callable[[Ledger], None]) -> Ending | None:
        self._context.require_held(self._job.cell_key)
        looked = self._context.look.at(watch.pause_s)
        seen = self._records.runner(looked)
        watch.saw(seen, self._context.clock.now_s())
        # the runner's own word first: asking SkyPilot takes seconds that are paid for
        ending = self._work_done(seen.closed) or self._cluster.look(seen.silence_s)
        if ending is not None:
            return self._explained(ending)
        now_s = self._context.clock.now_s()
        if seen.closed is not None:
            watch.closed_s = watch.closed_s or now_s
            if now_s - watch.closed_s >= SETTLE_S:
                return self._explained(_as_closed(seen.closed))
        elif (silent := self._silent(seen, looked, now_s - watch.started_s)) is not None:
            return self._explained(silent)  # it may have closed its attempt meanwhile
        elif (stuck := self._stuck(seen, looked, now_s)) is not None:
            return stuck
        report_commits(looked)
        if now_s - watch.checked_s > BUDGET_EVERY_S:
            watch.checked_s = now_s
            self._context.check_budget(self._job.cell_key)
        return None

    def _silent(self, seen: RunnerSeen, looked: Ledger, followed_s: float) -> Ending | None:
        """The ending of a runner that has been silent for too long; None if it has not."""
        if seen.lease is None:
            bound_s = BOUNDS["setup"].of(GPU_LAUNCH_S)
            text = f"the node runner was not heard of within {bound_s / 60:.0f} min"
            return Ending(None, Ended.SILENT, text) if followed_s > bound_s else None
        if not (self._records.is_free(seen.lease, looked) and self._records.is_free(seen.lease)):
            return None
        # a runner that is killed frees its lease at once: ask its cluster again before calling it silent
        text = f"no heartbeat for {HEARTBEAT_DEADLINE_S:.0f} s from {seen.lease.owner}"
        return self._cluster.look(None, insist=True) or Ending(None, Ended.SILENT, text)

    def _stuck(self, seen: RunnerSeen, looked: Ledger, now_s: float) -> Ending | None:
        """The ending of a runner that beats and gets nowhere; None: it gets somewhere, or was just looked at."""
        if seen.lease is None or not self._standstill.is_due(now_s):
            return None
        why = self._standstill.why(self._records.heartbeat(seen.lease, looked), now_s)
        if why is None:
            return None
        ending, tail = Ending(None, Ended.FAILED, why), self._cluster.log_tail(LOG_TAIL_LINES)
        # before it goes down: then it would say itself that it was asked to stop, and the first word stands
        self._insist(partial(self._records.close_attempt, seen.lease, ending, tail, self._context.clock.now_iso()))
        return ending

    def _explained(self, ending: Ending) -> Ending:
        """The ending, with the reason that the runner wrote itself if it got that far."""
        closed = self._records.runner().closed
        if ending.code is None and (done := self._work_done(closed)) is not None:
            ending = done  # the node was lost after its work was done
        if ending.how is Ended.DONE and self._todo():
            return Ending(None, Ended.FAILED, "the node runner said that it was done, and it was not")
        if ending.how is Ended.STOPPED and self._offer is not None:
            return Ending(None, Ended.PREEMPTED, "the node was told to leave; what it had finished is kept")
        if ending.code is not None and ending.code < 0:
            return ending._replace(detail=f"the node runner got signal {-ending.code}")
        if closed is not None and closed.reason:
            return ending._replace(detail=closed.reason)
        if ending.detail or ending.code is None or ending.how is Ended.DONE:
            return ending
        tail = self._cluster.log_tail(LOG_TAIL_LINES)
        return ending._replace(detail=tail[-1] if tail else f"the node runner ended with code {ending.code}")

    def _todo(self) -> list[Start]:
        return todo(self._ledger, self._planned, self._job.leg)

    def _leave_to_its_cloud(self, story: PlacementStory) -> None:
        """Wait until a noticed machine is taken back, if it costs nothing then; if we ended it, we would pay for it."""
        clock, offer = self._context.clock, story.asked.offer
        now_s = clock.now_s()
        until_s = now_s + TAKEN_WITHIN_S
        if not offer.spot or rented_s(story, until_s) > FREE_IF_INTERRUPTED_WITHIN_S.get(offer.cloud, 0.0):
            return
        with suppress(FlowStopped):  # its caller takes it down, and whoever goes on looks for the stop
            while now_s < until_s and self._cluster.machine_end(moment_s(story.asked.asked_at)) is None:
                clock.sleep(min(self._context.poll_s, until_s - now_s))
                now_s = clock.now_s()


def _as_closed(attempt: Attempt) -> Ending:
    if attempt.exit_code is None:
        return Ending(None, Ended.FAILED, attempt.reason)
    return Ending.of_runner(attempt.exit_code, attempt.reason)
