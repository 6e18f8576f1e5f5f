"""What a simulated night cost, from the records that the flow left: the bill is made as for a real run."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from bench.simulated_cloud import TEARDOWN_S
from bench.simulated_node import ENGINE_STOP_S, Durations
from configs.schema import Plan
from warehouse.bill.bill import BillLine, Phases, bill
from warehouse.lease import Leases
from warehouse.ledger import Ledger
from warehouse.outcomes import Ended
from warehouse.placement import Offer, Placements
from warehouse.price import usd_of

MEASURED_GOAL = 0.95
"""Share of the billed GPU seconds, loading left out, that should measure something."""

REQUESTS_GOAL = 200.0
"""Requests of the flow to the store that an hour of a cell may take."""

LOST_GOAL_S = 60.0
"""Measured seconds that one preemption may cost."""


class Night(NamedTuple):
    """The figures of one night; `phases_s` are billed GPU seconds: those of the `charged` machines, of `rented_s`."""

    cells: int
    places: int
    requests: Mapping[str, int]
    measured: int
    wall_h: float
    machines: int
    charged: int
    phases_s: Phases
    rented_s: Phases
    preemptions: int
    preempted_measuring: int
    lost_mean_s: float
    lost_max_s: float
    attempts_mean: float
    attempts_max: int
    no_capacity: int
    on_demand_share: float
    usd: float
    always_on_demand_usd: float
    spot_without_loss_usd: float

    @property
    def cell_h(self) -> float:
        """Hours for which cells had a machine, added up."""
        return sum(self.rented_s) / 3600

    @property
    def requests_cell_h(self) -> float:
        """Requests of the flow to the store, for each of those hours."""
        return sum(self.requests.values()) / self.cell_h

    @property
    def measured_share(self) -> float:
        """Share of the billed seconds, loading left out, that measured something."""
        return _share(self.phases_s)

    @property
    def rented_share(self) -> float:
        """The same share of all rented seconds, charged or not."""
        return _share(self.rented_s)

    @property
    def launch_s(self) -> float:
        """Mean seconds of a charged machine until its runner took the cell."""
        return (self.phases_s.provision + self.phases_s.setup) / self.charged

    @property
    def launch_goal_s(self) -> float:
        """Mean seconds of a launch with which the same night would just have met `MEASURED_GOAL`."""
        phases = self.phases_s
        measured_s = phases.smoke + phases.measure
        return (measured_s / MEASURED_GOAL - measured_s - phases.idle - phases.lost) / self.charged

    def missed(self) -> list[str]:
        """Goals that were not met, a line each."""
        lines = []
        if self.measured < self.cells:
            lines.append(f"{self.cells - self.measured} of {self.cells} cells were not measured")
        if self.measured_share < MEASURED_GOAL:
            lines.append(
                f"{self.measured_share:.1%} of the billed seconds without loading measured something, "
                f"the goal is {MEASURED_GOAL:.0%}: launches took {self.launch_s:.0f} s each, it allows "
                f"{self.launch_goal_s:.0f} s"
            )
        if self.requests_cell_h > REQUESTS_GOAL:
            lines.append(f"{self.requests_cell_h:.0f} store requests a cell-hour, the goal is {REQUESTS_GOAL:.0f}")
        if self.lost_max_s > LOST_GOAL_S:
            lines.append(f"a preemption cost {self.lost_max_s:.0f} s of work, the goal is {LOST_GOAL_S:.0f} s")
        return lines


def figures(
    ledger: Ledger,
    plan: Plan,
    truths: Mapping[str, Durations],
    losses_s: Sequence[float | None],
    offers: Sequence[Offer],
    launch_s: float,
    wall_s: float,
    requests: Mapping[str, int],
) -> Night:
    """Add up the night's records, and put the costs of an undisturbed night beside them.

    Args:
        ledger: the run's records.
        plan: its cells.
        truths: what each cell takes, by key.
        losses_s: measured seconds lost per reclaim; None where nothing was being measured.
        offers: what could be rented.
        launch_s: seconds that a launch takes.
        wall_s: simulated seconds of the night.
        requests: what the flow asked of the store, by kind.
    """
    keys = [planned.cell.cell_key for planned in plan.cells]
    stories = {key: Placements(ledger, key).stories() for key in keys}
    bills = {key: bill(stories[key], Leases(ledger, key).attempts()) for key in keys}
    lines = [line for of_cell in bills.values() for line in of_cell]
    rented = [line for line in lines if line.seconds is not None]
    charged = [line for line in rented if line.is_charged]
    phases = _summed(charged)
    ends = Counter(story.end.outcome for each in stories.values() for story in each if story.end is not None)
    attempts = [len(of_cell) for of_cell in bills.values()]
    lost = [seconds for seconds in losses_s if seconds is not None]
    committed, wanted = ledger.committed_steps(), {p.cell.cell_key: len(p.measurements) for p in plan.cells}
    once_s = sum(undisturbed_s(truths[key], launch_s) for key in keys)
    return Night(
        cells=len(keys),
        places=plan.concurrency,
        requests=requests,
        measured=sum(len(committed.get(key, [])) == wanted[key] for key in keys),
        wall_h=wall_s / 3600,
        machines=len(rented),
        charged=len(charged),
        phases_s=phases,
        rented_s=_summed(rented),
        preemptions=ends[Ended.PREEMPTED],
        preempted_measuring=len(lost),
        lost_mean_s=statistics.fmean(lost) if lost else 0.0,
        lost_max_s=max(lost, default=0.0),
        attempts_mean=statistics.fmean(attempts),
        attempts_max=max(attempts),
        no_capacity=ends[Ended.NO_CAPACITY],
        on_demand_share=sum(line.rented_s or 0.0 for line in charged if not _spot(line)) / sum(phases),
        usd=sum(line.cost_usd or 0.0 for line in lines),
        always_on_demand_usd=usd_of(_cheapest_usd_h(offers, spot=False), once_s),
        spot_without_loss_usd=usd_of(_cheapest_usd_h(offers, spot=True), once_s),
    )


def undisturbed_s(truth: Durations, launch_s: float) -> float:
    """Billed seconds of a cell whose first machine has capacity and is never taken away."""
    return launch_s + truth.load_s + truth.work_s + ENGINE_STOP_S + TEARDOWN_S


def _summed(lines: Sequence[BillLine]) -> Phases:
    return Phases(*(sum(column) for column in zip(*(line.seconds or () for line in lines), strict=True)))


def _share(phases: Phases) -> float:
    return (phases.smoke + phases.measure) / (sum(phases) - phases.load)


def _spot(line: BillLine) -> bool:
    return line.story is not None and line.story.asked.offer.spot


def _cheapest_usd_h(offers: Sequence[Offer], *, spot: bool) -> float:
    return min(offer.price_usd_h or 0.0 for offer in offers if offer.spot is spot)
