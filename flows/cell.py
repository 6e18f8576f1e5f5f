"""One cell until it is measured: choose a place, launch, follow, take down, and try again where that can help."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack, suppress
from functools import cached_property
from typing import Literal, NamedTuple

from configs.errors import SpecsweepError
from configs.schema import PlannedCell
from configs.visits import Start
from flows.attempt import AttemptRun
from flows.clock import FlowStopped
from flows.clusters.protocol import CellNeed, Ending, Launch, Wait
from flows.flow_heartbeat import CellTaken
from flows.forecast.estimates import measuring_s
from flows.run_context import OverBudget, RunContext
from flows.settling import left_open
from tasks.runner import CellRejected, todo
from warehouse.ledger.claims import ManagedElsewhere
from warehouse.ledger.commits import Commit, Ledger
from warehouse.ledger.outcomes import Ended
from warehouse.ledger.placement import Placements, PlacementStory
from warehouse.ledger.store import StoreAway

CellEnd = Literal["measured", "rejected", "failed", "stopped"]
"""After any number of attempts, each of which ends as an `Ended`; stopped: the flow ended first."""


class CellOutcome(NamedTuple):
    """How a cell ended in this flow run."""

    cell_key: str
    label: str
    ended: CellEnd
    reason: str
    attempts: int


def measure_cell(
    ledger: Ledger,
    planned: PlannedCell,
    context: RunContext,
    committed: Callable[[Commit], None],
    leg: int | None = None,
) -> CellOutcome:
    """Make attempts until the cell is measured, rejected by its smoke step, given up, or out of money.

    `committed` gets the commit of each measurement when it appears; `leg` None: both ways of a mirrored design.
    A store that is away is waited for: what runs goes on, and what is rented is adopted. Raises FlowStopped.
    """
    run = CellRun(ledger, planned, context, committed, leg)
    while True:
        try:
            return run.measured_unless_held()
        except StoreAway:
            context.clock.sleep(context.poll_s)
        except CellTaken as error:
            context.tell(f"{planned.cell.label}: {error}")
        except FlowStopped:
            with suppress(StoreAway):
                run.report_commits()  # of what was committed since the last look, too
            raise


class CellRun:
    """One cell in the hands of one flow (see `measure_cell`)."""

    def __init__(
        self,
        ledger: Ledger,
        planned: PlannedCell,
        context: RunContext,
        committed: Callable[[Commit], None],
        leg: int | None,
    ) -> None:
        self._ledger, self._planned, self._context, self._committed = ledger, planned, context, committed
        self._leg = leg
        self._key, self._label = planned.cell.cell_key, planned.cell.label
        self._placements = Placements(ledger, self._key)
        self._seen: set[str] = set()
        self._tried = self._faults = 0
        self._reason = ""
        self._asked_in_vain = False
        self._nothing_since_s = 0.0
        """From when on no machine of the cell was up, by the flow's clock; 0: it was not looked for yet."""

    def measured_unless_held(self) -> CellOutcome:
        """Hold the cell, after waiting for another flow that does, and measure it. Raises StoreAway, CellTaken."""
        try:
            # a machine that was left behind is followed to its end, or buried, whatever is measured or rejected
            may_be_up = self._context.purse is not None and self._placements.open() is not None
            if not may_be_up and not todo(self._ledger, self._planned, self._leg):
                return self._outcome("measured", "")
            with self._held():
                return self._measure()
        except CellRejected as error:
            return self._outcome("rejected", str(error))
        except OverBudget as error:
            return self._outcome("failed", str(error))

    def _measure(self) -> CellOutcome:
        left = self._placements.open()
        adopted = None if left is None else self._adopted(left)
        ending = None
        if left is not None and adopted is not None:
            self._context.tell(f"{self._label}: adopted the cluster {left.asked.cluster} in {left.asked.offer.where}")
            ending = adopted.follow(self.report_commits)
        was_up = adopted is not None or (left is not None and left.up is not None)
        if was_up or not self._nothing_since_s:  # what an absent store cuts short begins here again
            self._nothing_since_s = self._context.clock.now_s()
        left_to_do = list[Start]()
        while True:
            may_be_news = ending is None or ending.how.was_rented  # dry zones are tried by the hundred
            if may_be_news:
                self.report_commits()
            if ending is not None and self._is_over(ending):
                return self._outcome("measured" if ending.how is Ended.DONE else "rejected", self._reason)
            if may_be_news:
                left_to_do = todo(self._ledger, self._planned, self._leg)
            if not left_to_do:  # by another runner, or before the node was lost
                return self._outcome("measured", "")
            if self._faults >= self._context.max_attempts:
                return self._outcome("failed", self._reason)
            self._context.require_held(self._key)
            self._context.check_budget(self._key)
            attempt = self._next_attempt(left_to_do)
            if attempt is None:
                return self._outcome("failed", self._reason)
            self._tried += 1
            ending = attempt.run(self.report_commits)
            # a failed try is counted; what else never came up could be asked for for ever
            self._asked_in_vain = not attempt.was_up and not ending.how.row.is_failed_try
            if attempt.was_up:
                self._nothing_since_s = self._context.clock.now_s()

    def _adopted(self, left: PlacementStory) -> AttemptRun | None:
        """What an earlier flow left and still works; None: it is down.

        What no library can make out goes down, too: settling has asked before, and a machine that nobody follows is
        paid for all the same.
        """
        try:
            return left_open(self._ledger, self._planned, self._context, left)
        except SpecsweepError:
            raise  # the store is away, SkyPilot's server is gone, the cell is another flow's: what works may go on
        except Exception as error:
            said = f"{type(error).__name__}: {error}"
            self._context.tell(f"{self._label}: {left.asked.cluster} can't be adopted ({said}): it is taken down")
        AttemptRun(self._ledger, self._planned, self._context, left.asked.offer, placement=left.asked).bury()
        return None

    def _is_over(self, ending: Ending) -> bool:
        self._reason = ending.detail
        if ending.how in (Ended.DONE, Ended.REJECTED):
            return True
        self._faults += ending.how.row.is_failed_try
        self._context.tell(f"{self._label}: {ending.how}: {ending.detail}")
        return False

    def _next_attempt(self, left_to_do: list[Start]) -> AttemptRun | None:
        """The next attempt, after waiting for capacity if need be; None: for `wait_h` there was no machine.

        Places that were asked in vain are part of that wait, and queueing for a launch behind other cells is not.
        """
        clock = self._context.clock
        ends = [story.end.outcome for story in self._placements.stories() if story.end is not None]
        losses = sum(outcome.row.is_lost_machine for outcome in ends)  # over all flows of the run
        while True:
            clock.require_going()  # a place that is asked in vain is not slept for
            queued_s = clock.now_s()
            # the slot comes first: a place chosen before a long queue would be stale, and the queue would be billed
            slot = self._context.slots.take(clock)
            self._nothing_since_s += clock.now_s() - queued_s
            with slot:
                elapsed_s = clock.now_s() - self._began_s
                need = CellNeed(self._key, losses, measuring_s(self._planned, left_to_do), elapsed_s)
                decision = self._context.site.choose(need)
                if decision.why:
                    self._context.tell(f"{self._label}: {decision.why}")
                is_patient = clock.now_s() - self._nothing_since_s <= self._context.wait_h * 3600
                if isinstance(decision, Launch) and (is_patient or not self._asked_in_vain):
                    run = (self._ledger, self._planned, self._context, decision.offer)
                    attempt = AttemptRun(*run, leg=self._leg)
                    attempt.slot = slot.pop_all()
                    return attempt
            if isinstance(decision, Wait):
                self._reason = decision.why
            if not is_patient:
                self._reason = f"no machine for {self._context.wait_h:g} h (cloud.wait_h): {self._reason}"
                return None
            assert isinstance(decision, Wait)  # else it would have been launched
            clock.sleep(decision.until_s - clock.now_s())

    @cached_property
    def _began_s(self) -> float:
        return self._context.clock.now_s() - self._ledger.age_s()

    def _held(self) -> ExitStack:
        """Take the cell, after waiting while another flow works on it: it measures what we want."""
        said, since_s, held = "", self._context.clock.now_s(), ExitStack()
        while True:
            try:
                held.enter_context(self._context.managing(self._key))
                return held
            except ManagedElsewhere as other:
                if said != other.owner:
                    self._context.tell(f"{self._label}: another flow works on it ({other.owner}), waiting")
                    said = other.owner
            self._context.pause(since_s)

    def report_commits(self, looked: Ledger | None = None) -> None:
        """Report every step committed since the last call; by `looked`, if given, as far as it shows them."""
        names = {each.name for each in self._planned.measurements}
        if looked is not None:
            shown = looked.store.list(looked.cell_root(self._key))
            names.intersection_update(looked.committed_steps(shown).get(self._key, ()))
        for name in (each.name for each in self._planned.measurements if each.name in names):
            if name not in self._seen and (commit := self._ledger.read_commit(self._key, name)) is not None:
                self._seen.add(name)
                self._committed(commit)

    def _outcome(self, ended: CellEnd, reason: str) -> CellOutcome:
        return CellOutcome(self._key, self._label, ended, reason, self._tried)
