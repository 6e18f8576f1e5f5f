"""What the cells of one run share: where they run, how many launch at once, what they may cost."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, ExitStack
from functools import partial
from types import MappingProxyType
from typing import NamedTuple

from configs.checkout import ROOT
from configs.errors import SpecsweepError
from configs.schema import Cloud, Plan
from flows.clock import StoppableClock
from flows.clusters.local import LocalSite
from flows.clusters.protocol import Site, cluster_name
from flows.flow_heartbeat import HeldCells
from flows.forecast.budget import Purse
from warehouse.ledger.clock import HOUR_S
from warehouse.ledger.commits import Ledger
from warehouse.ledger.looks import LONGEST_S, SharedLook, pause_s
from warehouse.ledger.store.identity import store_id

LOOK_EVERY_S = 1.0  # pause between two looks for a free slot
LOCAL_POLL_S = 1.0  # pause between two looks at a runner of this machine; cheap enough not to disturb its measurement
CLOUD_POLL_S = 3.0  # shortest pause between two looks at a node, which one listing answers for all nodes of a flow


class Slots:
    """The launches that may run at once (`cloud.launch_slots`): API servers and clouds are easily overwhelmed.

    SkyPilot's local API server (0.14.1) runs each as a process of 0.3 to 0.4 GB. A stopped flow does not wait for one.
    """

    def __init__(self, count: int) -> None:
        self._semaphore = threading.BoundedSemaphore(count)

    def take(self, clock: StoppableClock) -> ExitStack:
        """Wait for a free slot, which is given back by closing it. FlowStopped: the flow is asked to end."""
        while not self._semaphore.acquire(blocking=False):
            clock.sleep(LOOK_EVERY_S)
        slot = ExitStack()
        slot.callback(self._semaphore.release)
        return slot


class OverBudget(SpecsweepError):
    """A budget is spent or can't be kept; the text says which, with the amounts."""


class RunContext(NamedTuple):
    """What the cells of one run share.

    `slots` limits how many launches run at once; `name_of` gives a cell's cluster name. `managing` protects a cell from
    other flows and the reaper; `require_held` raises where another flow has taken it over. All of them look at `look`,
    with pauses of `poll_s` to `longest_poll_s`. `purse` is None on this machine. `idle_s`: how long a machine idles
    before it removes itself. `unattended_s`: how long it lives without a flow, on clouds that give it a timer.
    """

    site: Site
    clock: StoppableClock
    max_attempts: int
    wait_h: float
    poll_s: float
    longest_poll_s: float
    look: SharedLook
    name_of: Callable[[str], str]
    managing: Callable[[str], AbstractContextManager[None]]
    slots: Slots
    purse: Purse | None
    tell: Callable[[str], None]
    require_held: Callable[[str], None] = lambda _: None
    idle_s: float | None = None
    unattended_s: Mapping[str, float] = MappingProxyType({})

    def pause(self, since_s: float) -> None:
        """Wait before looking again at what has been waited for since a moment of the clock."""
        self.clock.sleep(pause_s(self.clock.now_s() - since_s, self.poll_s, self.longest_poll_s))

    def check_budget(self, cell_key: str) -> None:
        """Raise OverBudget if the cell's, the run's or the month's money is spent, or something has no price."""
        over = None if self.purse is None else self.purse.over_run() or self.purse.over_cell(cell_key)
        if over is not None:
            raise OverBudget(over)


def purse_of(ledger: Ledger, plan: Plan, cloud: Cloud, clock: StoppableClock, look: SharedLook | None = None) -> Purse:
    """The money of one run, with the budgets that the sweep's file sets now."""
    shipped = ROOT / "configs" / "sweeps" / f"{plan.sweep}.yaml"
    file = str(shipped.relative_to(ROOT)) if shipped.exists() else f"the file of sweep {plan.sweep!r}"
    return Purse(ledger.store, ledger.run_id, cloud.budget, clock.now_s, file, look)


def run_context_for(
    ledger: Ledger, plan: Plan, clock: StoppableClock, held: HeldCells, tell: Callable[[str], None]
) -> RunContext:
    """Where and how the cells of one run are measured: here, or rented if the sweep has a `cloud`.

    The plan is as the sweep's file is now: its `cloud` may have changed since the start. `tell` gets what a person
    wants to know: losses, waits, where a cell goes next.
    """
    cloud, look = plan.cloud, SharedLook(ledger)
    purse = None if cloud is None else purse_of(ledger, plan, cloud, clock, look)
    if cloud is None or purse is None:
        site: Site = LocalSite()
        idle_s, unattended_s = None, dict[str, float]()
    else:
        from flows.clusters.skypilot.carried import TIMED_CLOUDS
        from flows.clusters.skypilot.task_file import load_task
        from flows.renting.sky_site import sky_site  # SkyPilot takes seconds to import

        site, idle_s = sky_site(ledger, plan, cloud, clock, purse), load_task(cloud.task).idle_s
        unattended_s = dict.fromkeys(TIMED_CLOUDS, cloud.unattended_h * HOUR_S)
    return RunContext(
        site=site,
        clock=clock,
        max_attempts=plan.max_attempts,
        wait_h=0 if cloud is None else cloud.wait_h,
        poll_s=LOCAL_POLL_S if cloud is None else CLOUD_POLL_S,
        longest_poll_s=LOCAL_POLL_S if cloud is None else LONGEST_S,
        look=look,
        name_of=partial(cluster_name, store_id(ledger.store), ledger.run_id),
        managing=held.managing,
        slots=Slots(plan.concurrency if cloud is None else cloud.launch_slots),
        purse=purse,
        tell=tell,
        require_held=held.require,
        idle_s=idle_s,
        unattended_s=unattended_s,
    )
