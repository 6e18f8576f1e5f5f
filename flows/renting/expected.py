"""What is left of a run, at the price of what would be rented for it: our policy is asked before anything is."""

from __future__ import annotations

from configs.schema import Cloud, Plan
from flows.clusters.protocol import CellNeed
from flows.clusters.skypilot.task_file import load_task
from flows.forecast.forecast import Forecast, forecast
from flows.renting.deadline import Pace
from flows.renting.failures import BACKOFF, Memory
from flows.renting.policy import Known, why_on_demand
from flows.renting.site import CHANGEOVER_S
from warehouse.clock import HOUR_S
from warehouse.ledger import Ledger


def expected(plan: Plan, ledger: Ledger | None) -> Forecast:
    """The forecast of what is left, on demand where spot is asked for and would not be rented.

    Args:
        plan: as the sweep's file is now.
        ledger: the run; None: there is no store yet.

    Raises:
        TaskFileError: the sweep's `cloud.task` can't be used.
    """
    committed = {} if ledger is None else ledger.committed_steps()
    left = forecast(plan, committed)
    if plan.cloud is None or not left.spot or left.gpu_h == 0:
        return left
    if not load_task(plan.cloud.task).allows_spot:
        return forecast(plan, committed, why_on_demand="use_spot is false in the sweep's task (cloud.task)")
    why = _why_on_demand(plan.cloud, left, 0.0 if ledger is None else ledger.age_s())
    return left if why is None else forecast(plan, committed, why_on_demand=why)


def _why_on_demand(cloud: Cloud, left: Forecast, elapsed_s: float) -> str | None:
    """What the policy says of all that is left, as if it were one cell that has lost nothing.

    With a deadline some cells may still get spot; nobody knows which, so all are priced as the last one would be.
    """
    work_s, pace = left.wall_h * HOUR_S, None
    if cloud.finish_by_h is not None:
        pace = Pace(None, work_s, cloud.finish_by_h * HOUR_S - elapsed_s, CHANGEOVER_S)
    need = CellNeed(cell_key="", losses=0, remaining_s=work_s, done_s=0.0, elapsed_s=elapsed_s)
    return why_on_demand(need, cloud, Known(Memory(), BACKOFF, pace, was_on_demand=False))
