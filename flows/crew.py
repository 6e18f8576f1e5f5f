"""From a plan to the crew that measures it: where cells run, at what pace they are looked at, what they may cost."""

from __future__ import annotations

from collections.abc import Callable

from configs.schema import Cloud, Plan
from flows.budget import Purse
from flows.cell import Crew
from flows.clock import Clock
from flows.clusters.local import LocalSite
from flows.clusters.names import cluster_name
from flows.clusters.protocol import Site
from flows.forecast import forecast
from flows.prefect_session import ROOT
from flows.pulse import FlowPulse
from flows.slots import Slots, launches_at_once
from warehouse.ledger import Ledger

LOCAL_POLL_S = 1.0
"""Pause between two looks at a runner of this machine; cheap enough not to disturb its measurement."""

CLOUD_POLL_S = 3.0
"""Pause between two looks at a node: a few small reads of the store each."""


def purse_of(ledger: Ledger, plan: Plan, cloud: Cloud, clock: Clock) -> Purse:
    """The money of one run, by the budgets that the sweep's file has now."""
    return Purse(ledger.store, ledger.run_id, cloud.budget, clock.now_s, _sweep_file(plan))


def _sweep_file(plan: Plan) -> str:
    shipped = ROOT / "configs" / "sweeps" / f"{plan.sweep}.yaml"
    return str(shipped.relative_to(ROOT)) if shipped.exists() else f"the file of sweep {plan.sweep!r}"


def require_budget(ledger: Ledger, plan: Plan) -> None:
    """Refuse a run that would cost more than it may.

    Raises:
        BudgetExceeded: by the forecast of what is still to be measured.
    """
    if plan.cloud is not None:
        purse_of(ledger, plan, plan.cloud, Clock()).check_start(forecast(plan, ledger.committed_steps()))


def crew_for(ledger: Ledger, plan: Plan, clock: Clock, pulse: FlowPulse, say: Callable[[str], None]) -> Crew:
    """The crew of one run.

    Args:
        ledger: the run.
        plan: as the sweep's file says now; its `cloud` may differ from when the run was started.
        clock: the flow's.
        pulse: the flow's heartbeat.
        say: told what a person would want to know: losses, waits, where a cell goes next.
    """

    def name_of(cell_key: str) -> str:
        return cluster_name(ledger.store.url, ledger.run_id, cell_key)

    cloud = plan.cloud
    if cloud is None:
        site: Site = LocalSite()
    else:
        from flows.rental import sky_site  # SkyPilot takes seconds to import

        site = sky_site(ledger, plan, cloud, clock)
    return Crew(
        site=site,
        clock=clock,
        max_attempts=plan.max_attempts,
        wait_h=0 if cloud is None else cloud.wait_h,
        poll_s=LOCAL_POLL_S if cloud is None else CLOUD_POLL_S,
        name_of=name_of,
        managing=pulse.managing,
        slots=Slots(plan.concurrency if cloud is None else launches_at_once()),
        purse=None if cloud is None else purse_of(ledger, plan, cloud, clock),
        say=say,
    )
