"""One cell until it is measured: choose a place, launch, follow, take down, and try again where that can help."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, NamedTuple

from configs.schema import PlannedCell
from configs.visits import Start
from flows.attempt import AttemptRun
from flows.clusters.protocol import CellNeed, Ending, Launch, Wait
from flows.forecast.estimates import measuring_s
from flows.run_context import OverBudget, RunContext
from tasks.runner import CellRejected, todo
from warehouse.ledger import Ledger
from warehouse.outcomes import Ended
from warehouse.placement import Placements
from warehouse.store import StoreAway

CellEnd = Literal["measured", "rejected", "failed"]
"""How a cell can end, after any number of attempts; how each attempt ended is an `Ended`."""


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
    committed: Callable[[str], None],
    leg: int | None = None,
) -> CellOutcome:
    """Make attempts until the cell is measured, rejected by its smoke step, given up, or out of money.

    Args:
        ledger: the run.
        planned: the cell and its steps.
        context: where it may run, and what bounds it.
        committed: called with the name of each measurement when its commit appears.
        leg: of a mirrored design, which way; None: everything.
    """
    return CellRun(ledger, planned, context, committed, leg).measure()


class CellRun:
    """One cell in the hands of one flow."""

    def __init__(
        self,
        ledger: Ledger,
        planned: PlannedCell,
        context: RunContext,
        committed: Callable[[str], None],
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

    def measure(self) -> CellOutcome:
        """See `measure_cell`. A store that is away is waited for: what runs goes on, and what is rented is adopted."""
        while True:
            try:
                return self._measured_unless_held()
            except StoreAway:
                self._context.clock.sleep(self._context.poll_s)

    def _measured_unless_held(self) -> CellOutcome:
        try:
            if not self._todo():
                return self._outcome("measured", "")
            self._wait_for_other_flow()
            with self._context.managing(self._key):
                return self._measure()
        except CellRejected as error:
            return self._outcome("rejected", str(error))
        except OverBudget as error:
            return self._outcome("failed", str(error))

    def _measure(self) -> CellOutcome:
        adopted = self._adopted()
        ending = adopted.follow(self.report_commits) if adopted is not None else None
        self._nothing_since_s = self._context.clock.now_s()
        while True:
            self.report_commits()
            if ending is not None and self._is_over(ending):
                return self._outcome("measured" if ending.how is Ended.DONE else "rejected", self._reason)
            if not self._todo():  # by another runner, or before the node was lost
                return self._outcome("measured", "")
            if self._faults >= self._context.max_attempts:
                return self._outcome("failed", self._reason)
            self._context.check_budget(self._key)
            attempt = self._next_attempt()
            if attempt is None:
                return self._outcome("failed", self._reason)
            self._tried += 1
            ending = attempt.run(self.report_commits)
            self._asked_in_vain = not ending.how.was_rented
            if ending.how.was_rented:
                self._nothing_since_s = self._context.clock.now_s()

    def _is_over(self, ending: Ending) -> bool:
        """Note how an attempt ended; return whether the cell is finished."""
        self._reason = ending.detail
        if ending.how in (Ended.DONE, Ended.REJECTED):
            return True
        self._faults += ending.how.row.is_failed_try
        self._context.tell(f"{self._label}: {ending.how}: {ending.detail}")
        return False

    def _next_attempt(self) -> AttemptRun | None:
        """The next attempt, after waiting for capacity if need be; None: for `wait_h` there was no machine.

        Places that were asked in vain are part of that wait, and queueing for a launch behind other cells is not.
        """
        clock = self._context.clock
        while True:
            queued_s = clock.now_s()
            # the slot comes first: a place chosen before a long queue would be stale, and the queue would be billed
            slot = self._context.slots.take(clock)
            self._nothing_since_s += clock.now_s() - queued_s
            with slot.unless_kept():
                decision = self._context.site.choose(self._need())
                if decision.why:
                    self._context.tell(f"{self._label}: {decision.why}")
                is_patient = clock.now_s() - self._nothing_since_s <= self._context.wait_h * 3600
                if isinstance(decision, Launch) and (is_patient or not self._asked_in_vain):
                    offer = decision.offer
                    return AttemptRun(
                        self._ledger, self._planned, self._context, offer, leg=self._leg, slot=slot.keep()
                    )
            if isinstance(decision, Wait):
                self._reason = decision.why
            if not is_patient:
                self._reason = f"no machine for {self._context.wait_h:g} h (cloud.wait_h): {self._reason}"
                return None
            assert isinstance(decision, Wait)  # else it would have been launched
            clock.sleep(decision.until_s - clock.now_s())

    def _adopted(self) -> AttemptRun | None:
        """The attempt whose cluster an earlier flow left working; None if there is none. A broken cluster goes down."""
        story = self._placements.open()
        if story is None:
            return None
        attempt = AttemptRun(self._ledger, self._planned, self._context, story.asked.offer, placement=story.asked)
        if attempt.adopt():
            self._context.tell(f"{self._label}: adopted the cluster {story.asked.cluster} in {story.asked.offer.where}")
            return attempt
        attempt.bury()
        return None

    def _need(self) -> CellNeed:
        remaining_s = measuring_s(self._planned, self._todo())
        ends = [story.end.outcome for story in self._placements.stories() if story.end is not None]
        return CellNeed(
            cell_key=self._key,
            losses=sum(outcome.row.is_lost_machine for outcome in ends),
            remaining_s=remaining_s,
            done_s=measuring_s(self._planned, self._planned.starts) - remaining_s,
            elapsed_s=self._ledger.store.age_s(f"{self._ledger.root}/plan.json") or 0.0,
        )

    def _wait_for_other_flow(self) -> None:
        """Wait while another flow works on this cell: it measures what we want."""
        said = False
        while self._placements.managed():
            if not said:
                self._context.tell(f"{self._label}: another flow works on it, waiting")
                said = True
            self._context.clock.sleep(self._context.poll_s)

    def report_commits(self) -> None:
        """Report every step committed since the last call."""
        for name in (each.name for each in self._planned.measurements):
            if name not in self._seen and self._ledger.read_commit(self._key, name) is not None:
                self._seen.add(name)
                self._committed(name)

    def _todo(self) -> list[Start]:
        return todo(self._ledger, self._planned, self._leg)

    def _outcome(self, ended: CellEnd, reason: str) -> CellOutcome:
        return CellOutcome(self._key, self._label, ended, reason, self._tried)
