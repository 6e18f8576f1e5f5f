"""What an earlier flow left open: adopted if it still works, else buried, before anybody counts what it cost."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from functools import partial

from configs.schema import Plan, PlannedCell
from flows.attempt import AttemptRun
from flows.clock import StoppableClock
from flows.forecast.budget import BudgetExceeded
from flows.reaper.books import rented_cells
from flows.renting.site import expected
from flows.run_context import RunContext, purse_of
from warehouse.ledger.claims import ManagedElsewhere
from warehouse.ledger.commits import Ledger
from warehouse.ledger.placement import Placements, PlacementStory

AT_ONCE = 8  # cells that are asked about at the same time; each takes SkyPilot a second or two


def settle_and_require_budget(ledger: Ledger, plan: Plan, context: RunContext) -> None:
    """Refuse a run that would cost more than it may, by what its machines cost indeed, as BudgetExceeded."""
    if plan.cloud is not None:
        settle(ledger, plan, context)
    require_budget(ledger, plan)


def require_budget(ledger: Ledger, plan: Plan) -> None:
    """Refuse a run whose spending and forecast exceed a budget, or that has no price, as BudgetExceeded."""
    if plan.cloud is None:
        return
    try:
        purse_of(ledger, plan, plan.cloud, StoppableClock()).check_start(expected(plan, ledger))
    except BudgetExceeded as error:
        # what is recorded as up is left as it is by a refusal
        stories = [Placements(ledger, cell_key).open() for cell_key in sorted(open_cells(ledger))]
        names = " ".join(story.asked.cluster for story in stories if story is not None)
        ends = f"`bin/sky down -y {names}` ends it, then `bin/sweep reap` closes its records"
        up = f"; what an earlier flow left up, as far as is recorded, is paid for on: {ends}" if names else ""
        raise BudgetExceeded(f"{error}{up}") from error


def settle(ledger: Ledger, plan: Plan, context: RunContext) -> None:
    """Close the records of what is gone, so that a budget counts what was spent and not what nobody looked after.

    What still works stays open, and is adopted when its cell's turn comes; what another flow manages is that flow's.
    """
    cells = open_cells(ledger)
    left = [planned for planned in plan.cells if planned.cell.cell_key in cells]
    with ThreadPoolExecutor(AT_ONCE) as pool:
        list(pool.map(partial(_settle_cell, ledger, context), left))


def left_open(ledger: Ledger, planned: PlannedCell, context: RunContext, story: PlacementStory) -> AttemptRun | None:
    """The attempt of an open placement whose cluster still works; None if it doesn't: then it goes down."""
    attempt = AttemptRun(ledger, planned, context, story.asked.offer, placement=story.asked)
    if attempt.adopt():
        return attempt
    attempt.bury()
    return None


def _settle_cell(ledger: Ledger, context: RunContext, planned: PlannedCell) -> None:
    try:
        with context.managing(planned.cell.cell_key):
            story = Placements(ledger, planned.cell.cell_key).open()
            if story is not None:
                left_open(ledger, planned, context, story)
    except ManagedElsewhere:
        return  # that flow follows it
    except Exception as error:  # SkyPilot's and the clouds' own, too: its cell tries again, and fails alone
        said = f"{type(error).__name__}: {error}"
        context.tell(f"{planned.cell.label}: what an earlier flow left open can't be settled now: {said}")


def open_cells(ledger: Ledger) -> set[str]:
    """Keys of cells with a placement whose end is not recorded: one listing."""
    _, unended = rented_cells(ledger.keys())
    return {cell.cell_key for cell in unended}
