"""What the cells of one run share: where they run, how often they are looked at, what they may cost."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import NamedTuple

from configs.checkout import ROOT
from configs.errors import SpecsweepError
from configs.schema import Cloud, Plan
from flows.clock import StoppableClock
from flows.clusters.local import LocalSite
from flows.clusters.names import cluster_name
from flows.clusters.protocol import Site
from flows.flow_heartbeat import FlowHeartbeatSender
from flows.forecast.budget import Purse
from flows.forecast.forecast import forecast
from flows.launch_slots import Slots, launches_at_once
from warehouse.ledger import Ledger

LOCAL_POLL_S = 1.0
"""Pause between two looks at a runner of this machine; cheap enough not to disturb its measurement."""

CLOUD_POLL_S = 3.0
"""Pause between two looks at a node; each costs a few small reads of the store."""


class OverBudget(SpecsweepError):
    """A budget is spent or can't be kept; the text says which, with the amounts."""


class RunContext(NamedTuple):
    """What the cells of one run share.

    `slots` limits how many launches run at once; `name_of` gives a cell's cluster name; `managing` protects a cell from
    other flows and the reaper; `poll_s` is the pause between two looks at a node; `purse` is None on this machine.
    """

    site: Site
    clock: StoppableClock
    max_attempts: int
    wait_h: float
    poll_s: float
    name_of: Callable[[str], str]
    managing: Callable[[str], AbstractContextManager[None]]
    slots: Slots
    purse: Purse | None
    tell: Callable[[str], None]

    def check_budget(self, cell_key: str) -> None:
        """Let a cell go on only while its own, the run's and the month's budgets last.

        Raises:
            OverBudget: one is spent, or something was rented without a price.
        """
        over = None if self.purse is None else self.purse.over_run() or self.purse.over_cell(cell_key)
        if over is not None:
            raise OverBudget(over)


def purse_of(ledger: Ledger, plan: Plan, cloud: Cloud, clock: StoppableClock) -> Purse:
    """The money of one run, with the budgets that the sweep's file sets now."""
    return Purse(ledger.store, ledger.run_id, cloud.budget, clock.now_s, _sweep_file(plan))


def _sweep_file(plan: Plan) -> str:
    shipped = ROOT / "configs" / "sweeps" / f"{plan.sweep}.yaml"
    return str(shipped.relative_to(ROOT)) if shipped.exists() else f"the file of sweep {plan.sweep!r}"


def require_budget(ledger: Ledger, plan: Plan) -> None:
    """Refuse a run that would cost more than it may.

    Raises:
        BudgetExceeded: what is spent and the forecast of the rest exceed a budget, or a price is not known.
    """
    if plan.cloud is not None:
        purse_of(ledger, plan, plan.cloud, StoppableClock()).check_start(forecast(plan, ledger.committed_steps()))


def run_context_for(
    ledger: Ledger, plan: Plan, clock: StoppableClock, heartbeat: FlowHeartbeatSender, tell: Callable[[str], None]
) -> RunContext:
    """Where and how the cells of one run are measured: here, or rented if the sweep has a `cloud`.

    Args:
        ledger: the run.
        plan: as the sweep's file is now; its `cloud` may have changed since the run was started.
        clock: the flow's.
        heartbeat: the flow's heartbeat.
        tell: gets what a person wants to know: losses, waits, where a cell goes next.
    """

    def name_of(cell_key: str) -> str:
        return cluster_name(ledger.store.url, ledger.run_id, cell_key)

    cloud = plan.cloud
    if cloud is None:
        site: Site = LocalSite()
    else:
        from flows.renting.sky_site import sky_site  # SkyPilot takes seconds to import

        site = sky_site(ledger, plan, cloud, clock)
    return RunContext(
        site=site,
        clock=clock,
        max_attempts=plan.max_attempts,
        wait_h=0 if cloud is None else cloud.wait_h,
        poll_s=LOCAL_POLL_S if cloud is None else CLOUD_POLL_S,
        name_of=name_of,
        managing=heartbeat.managing,
        slots=Slots(plan.concurrency if cloud is None else launches_at_once()),
        purse=None if cloud is None else purse_of(ledger, plan, cloud, clock),
        tell=tell,
    )
