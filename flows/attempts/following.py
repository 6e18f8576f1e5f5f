"""Following a node runner to its end: how often it is looked at, when it is given up, and why it ended."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

from flows.attempts.records import AttemptRecords, RunnerSeen
from flows.clusters.protocol import Cluster, Ending
from flows.run_context import RunContext
from warehouse.lease import HEARTBEAT_DEADLINE_S, Attempt
from warehouse.ledger import Ledger
from warehouse.looks import pause_s
from warehouse.managing.claims import FLOW_DEADLINE_S
from warehouse.outcomes import Ended
from warehouse.store import StoreAway

LOG_TAIL_LINES = 30
"""Lines of the node's log kept in the row of a lost attempt."""

SETTLE_S = 3.0
"""How long a cluster may take to notice that its runner, which has closed its attempt, has ended."""

START_DEADLINE_S = 2400.0
"""From submission to the first sign of life: the node installs its environment and pulls an image of 15 GB."""

BUDGET_EVERY_S = 30.0
"""Pause between two budget checks while a node works."""

UNEASY_S = 20.0
"""Silence after which a runner is looked at as often as at first; four heartbeats."""


class Watch:
    """What is remembered from look to look: moments by the flow's clock, s."""

    def __init__(self, now_s: float, shortest_s: float, longest_s: float) -> None:
        """Begin now; pauses between looks are from `shortest_s` to `longest_s`."""
        self.started_s = self.checked_s = self.looked_s = self._news_s = now_s
        self.closed_s: float | None = None
        self._epoch: int | None = None
        self._shortest_s, self._longest_s = shortest_s, longest_s
        self.pause_s = shortest_s

    def saw(self, seen: RunnerSeen, now_s: float) -> None:
        """Choose the pause until the next look: a runner that is new, silent or done is looked at often."""
        epoch = None if seen.lease is None else seen.lease.epoch
        is_uneasy = epoch is not None and (seen.silence_s is None or seen.silence_s > UNEASY_S)
        if epoch != self._epoch or is_uneasy or seen.closed is not None:
            self._news_s = now_s
        self._epoch = epoch
        self.pause_s = pause_s(now_s - self._news_s, self._shortest_s, self._longest_s)


class Following:
    """One runner and the cluster under it. `was_watched`: whether nothing of it was slept through."""

    def __init__(
        self,
        context: RunContext,
        records: AttemptRecords,
        cluster: Cluster,
        cell_key: str,
        *,
        is_rented: bool,
        left: Callable[[], object],
    ) -> None:
        """Look at nothing yet.

        Args:
            context: what the cells of the run share.
            records: of the attempt.
            cluster: on which it runs.
            cell_key: its cell.
            is_rented: whether the cluster is a machine that may be lost; else it is this one.
            left: what of the cell is not measured yet.
        """
        self._context, self._records, self._cluster, self._key = context, records, cluster, cell_key
        self._is_rented, self._left = is_rented, left
        self.was_watched = True

    def to_its_end(self, report_commits: Callable[[Ledger], None]) -> Ending:
        """Look until the runner or its cluster has ended, or has been silent for too long.

        Raises:
            OverBudget: it may not go on.
            CellTaken: another flow follows it.
        """
        context, clock = self._context, self._context.clock
        watch = Watch(clock.now_s(), context.poll_s, context.longest_poll_s)
        while True:
            now_s = clock.now_s()
            if now_s - watch.looked_s > FLOW_DEADLINE_S:  # it slept: what became of the machine meanwhile, nobody saw
                self.was_watched = False
            watch.looked_s = now_s
            # a store that is away says so itself; without its word nobody takes down a node that may measure well
            with suppress(StoreAway):
                if (ending := self._looked(watch, report_commits)) is not None:
                    return ending
            clock.sleep(watch.pause_s)

    def work_done(self, closed: Attempt | None) -> Ending | None:
        """The ending that a rented node's runner wrote itself, if nothing its cluster says can change it; else None."""
        if closed is None or not self._is_rented:
            return None
        ending = _as_closed(closed)
        return ending if ending.how in (Ended.DONE, Ended.REJECTED, Ended.NOTICE) else None

    def _looked(self, watch: Watch, report_commits: Callable[[Ledger], None]) -> Ending | None:
        """One look; None: the runner goes on."""
        self._context.require_held(self._key)
        looked = self._context.look.at(watch.pause_s)
        seen = self._records.runner(looked)
        watch.saw(seen, self._context.clock.now_s())
        # the runner's own word first: asking SkyPilot takes seconds that are paid for
        ending = self.work_done(seen.closed) or self._cluster.look(seen.silence_s)
        if ending is not None:
            return self._explained(ending)
        now_s = self._context.clock.now_s()
        if seen.closed is not None:
            watch.closed_s = watch.closed_s or now_s
            if now_s - watch.closed_s >= SETTLE_S:
                return self._explained(_as_closed(seen.closed))
        elif (silent := self._silent(seen, looked, now_s - watch.started_s)) is not None:
            return self._explained(silent)  # it may have closed its attempt meanwhile
        report_commits(looked)
        if now_s - watch.checked_s > BUDGET_EVERY_S:
            watch.checked_s = now_s
            self._context.check_budget(self._key)
        return None

    def _silent(self, seen: RunnerSeen, looked: Ledger, followed_s: float) -> Ending | None:
        """The ending of a runner that has been silent for too long; None if it has not."""
        if seen.lease is None:
            text = f"the node runner was not heard of within {START_DEADLINE_S / 60:.0f} min"
            return Ending(None, Ended.SILENT, text) if followed_s > START_DEADLINE_S else None
        if not (self._records.is_free(seen.lease, looked) and self._records.is_free(seen.lease)):
            return None
        # a runner that is killed frees its lease at once: ask its cluster again before calling it silent
        text = f"no heartbeat for {HEARTBEAT_DEADLINE_S:.0f} s from {seen.lease.owner}"
        return self._cluster.look(None, insist=True) or Ending(None, Ended.SILENT, text)

    def _explained(self, ending: Ending) -> Ending:
        """The ending, with the reason that the runner wrote itself if it got that far."""
        closed = self._records.runner().closed
        if ending.code is None and (done := self.work_done(closed)) is not None:
            ending = done  # the node was lost after its work was done
        if ending.how is Ended.DONE and self._left():
            return Ending(None, Ended.FAILED, "the node runner said that it was done, and it was not")
        if ending.how is Ended.STOPPED and self._is_rented:
            return Ending(None, Ended.PREEMPTED, "the node was told to leave; what it had finished is kept")
        if ending.code is not None and ending.code < 0:
            return ending._replace(detail=f"the node runner got signal {-ending.code}")
        if closed is not None and closed.reason:
            return ending._replace(detail=closed.reason)
        if ending.detail or ending.code is None or ending.how is Ended.DONE:
            return ending
        tail = self._cluster.log_tail(LOG_TAIL_LINES)
        return ending._replace(detail=tail[-1] if tail else f"the node runner ended with code {ending.code}")


def _as_closed(attempt: Attempt) -> Ending:
    """The ending by the attempt's row. If it has no exit code, somebody else closed it for the runner."""
    if attempt.exit_code is None:
        return Ending(None, Ended.FAILED, attempt.reason)
    return Ending.of_runner(attempt.exit_code, attempt.reason)
