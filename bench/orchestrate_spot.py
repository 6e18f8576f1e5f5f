"""A simulated night on spot machines: our own policy and flow code, simulated clouds, nodes and clock.

    bin/run python bench/orchestrate_spot.py [--cells 250] [--seed 1] [--reclaimed-per-hour 0.2] [--launch-s 300]

The cells of the sweep `full` are repeated as often as needed, with today's steps and one that stands for the six evals
to come. `measure_cell`, `PolicySite`, ledger, leases, placements and the bill are the real ones. It prints which share
of the billed GPU seconds measured something, what a preemption cost, and the dollars. If a goal was missed, a line says
so and the exit code is 1. With `--json` the last line is one JSON document.
"""

from __future__ import annotations

import argparse
import json
import random
import resource
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator
from functools import partial

from bench.counted_store import CountedStore
from bench.night_figures import Night, figures
from bench.simulated_clock import SimulatedClock
from bench.simulated_cloud import SimulatedCloud, SimulatedCluster, Weather
from bench.simulated_node import durations
from bench.simulated_store import SimulatedStore
from configs.expand import expand
from configs.load import load_sweep
from configs.schema import Budget, Cloud, Plan, PlannedCell
from configs.step import MeasuredStep
from configs.steps.eval_tiny import EvalTinyStep
from flows.cell import CellOutcome, measure_cell
from flows.clusters.names import cluster_name
from flows.clusters.protocol import Cluster
from flows.flow_heartbeat import BEAT_EVERY_S, HeldCells
from flows.forecast.budget import Purse
from flows.forecast.estimates import GPU_LAUNCH_S
from flows.forecast.forecast import forecast
from flows.renting.site import PolicySite
from flows.run_context import CLOUD_POLL_S, RunContext, Slots
from warehouse.ledger import Ledger
from warehouse.looks import LONGEST_S, SharedLook
from warehouse.placement import Offer

PLACES = 24
"""Cells measured at the same time."""

EVALS = EvalTinyStep(step="eval-tiny", kind=None, items=2437, max_tokens=4000, concurrency=8)
"""Stands for the evals of `configs/suites/full.yaml`: as many items, and the length assumed of thinking answers."""

NIGHT_S = 1_798_840_800.0
"""When the night begins: 1 January 2027, 22:00 UTC."""


def main() -> int:
    """Simulate the night and print its figures; returns 1 if a goal was missed."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--cells", type=int, default=250)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--reclaimed-per-hour", type=float, default=0.2, help="probability for each spot machine")
    parser.add_argument("--launch-s", type=float, default=GPU_LAUNCH_S, help="from asking to the runner's lease")
    parser.add_argument("--room", type=int, default=1, help="how many times the spot machines there are (46)")
    parser.add_argument("--finish-by-h", type=float, default=None, help="cloud.finish_by_h of the sweep")
    parser.add_argument("--places", type=int, default=PLACES, help="cells measured at the same time")
    parser.add_argument("--launch-slots", type=int, default=8, help="cloud.launch_slots of the sweep")
    parser.add_argument("--json", action="store_true", help="print the figures as one JSON document, last")
    args = parser.parse_args()
    started, cpu_s = time.perf_counter(), time.process_time()
    weather = Weather(args.reclaimed_per_hour, args.launch_s, args.room)
    night = live(args.cells, args.seed, weather, args.finish_by_h, args.launch_slots, args.places)
    missed = night.missed()
    print("\n".join(_sentences(night)))
    cpu_s = time.process_time() - cpu_s
    peak_mib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"CPU                 {cpu_s / (3600 * night.wall_h):8.2%}   of one core, with the simulation, without S3")
    print(
        f"simulated in {time.perf_counter() - started:.0f} s, at most {peak_mib:.0f} MiB, the store's objects included"
    )
    for line in missed:
        print(f"goal missed: {line}", file=sys.stderr)
    if args.json:
        shares = {f"{name}_share": seconds / sum(night.phases_s) for name, seconds in night.phases_s._asdict().items()}
        fields = night._asdict() | {"phases_s": night.phases_s._asdict(), "measured_share": night.measured_share}
        fields |= {"rented_s": night.rented_s._asdict(), "rented_share": night.rented_share}
        print(json.dumps(fields | shares | {"missed": missed}))
    return 1 if missed else 0


def live(
    cells: int, seed: int, weather: Weather, finish_by_h: float | None, launches: int, places: int = PLACES
) -> Night:
    """Simulate one night, from the first launch until the last machine is down."""
    clock = SimulatedClock(NIGHT_S)
    store = SimulatedStore(clock.now_s)
    counted = CountedStore(store)
    plan = many_cells(cells, finish_by_h, places)
    ledger = Ledger(counted, "night", clock)
    truths = {planned.cell.cell_key: durations(planned, seed) for planned in plan.cells}
    cloud = SimulatedCloud(clock, store, weather, seed)
    ledger.write_plan(plan)

    def make_cluster(cell_key: str, offer: Offer | None) -> Cluster:
        assert offer is not None, "clouds have offers"
        return SimulatedCluster(cloud, offer, cluster_name(store.url, "night", cell_key), truths[cell_key])

    assert plan.cloud is not None
    waiting_s = {cell.cell_key: cell.total_s for cell in forecast(plan, {}).cells}
    site = PolicySite(
        cloud.offers,
        make_cluster,
        plan.cloud,
        [],
        clock.now_s,
        random.Random(seed),
        waiting_s=waiting_s,
        places=places,
    )
    cells_held = HeldCells(ledger, lambda _: None)
    _beating(clock, cells_held)
    budget = Budget.model_validate({"run_usd": 1e6})
    look = SharedLook(ledger)
    context = RunContext(
        site=site,
        clock=clock,
        max_attempts=plan.max_attempts,
        wait_h=plan.cloud.wait_h,
        poll_s=CLOUD_POLL_S,
        longest_poll_s=LONGEST_S,
        look=look,
        unattended_s={"aws": plan.cloud.unattended_h * 3600},
        name_of=lambda key: cluster_name(store.url, "night", key),
        managing=cells_held.managing,
        slots=Slots(launches),
        purse=Purse(counted, "night", budget, clock.now_s, look=look),
        tell=lambda _: None,
    )
    clock.run(_places(ledger, plan, context, places))
    wall_s, requests = clock.now_s() - NIGHT_S, dict(counted.requests)
    return figures(ledger, plan, truths, cloud.losses_s, cloud.offers(), weather.launch_s, wall_s, requests)


def _beating(clock: SimulatedClock, cells: HeldCells) -> None:
    """Send the flow's heartbeat as `FlowHeartbeatSender` does, by the simulated clock."""
    cells.beat()
    clock.at(clock.now_s() + BEAT_EVERY_S, partial(_beating, clock, cells))


def _places(ledger: Ledger, plan: Plan, context: RunContext, places: int) -> list[Callable[[], None]]:
    """Workers that take the next cell until there is none."""
    left = deque(plan.cells)
    outcomes: list[CellOutcome] = []

    def place() -> None:
        while left:
            outcomes.append(measure_cell(ledger, left.popleft(), context, lambda _: None))

    return [place] * places


def many_cells(cells: int, finish_by_h: float | None, places: int = PLACES) -> Plan:
    """The cells of `full`, repeated and told apart by their `max_model_len`."""
    plan = expand(load_sweep("full"))
    rows = tuple(_variant(plan.cells[index % len(plan.cells)], index) for index in range(cells))
    cloud = Cloud.model_validate({"task": "simulated", "finish_by_h": finish_by_h})
    return plan.model_copy(update={"cells": rows, "concurrency": places, "cloud": cloud})


def _variant(planned: PlannedCell, index: int) -> PlannedCell:
    serving = planned.cell.serving.model_copy(update={"max_model_len": 16384 + index})
    cell = planned.cell.model_copy(update={"serving": serving})
    steps: tuple[MeasuredStep, ...] = (*planned.measured_steps, EVALS)
    return planned.model_copy(update={"cell": cell, "steps": steps})


def _sentences(night: Night) -> Iterator[str]:
    phases = night.phases_s
    billed_s = sum(phases)
    yield f"{night.measured} of {night.cells} cells measured in {night.wall_h:.1f} h, {night.places} places"
    yield f"billed GPU hours    {billed_s / 3600:8.1f}"
    for name, seconds in phases._asdict().items():
        yield f"  {name:<17} {seconds / 3600:8.1f}   {seconds / billed_s:6.1%}"
    yield f"measured something  {night.measured_share:8.1%}   of what was billed without loading the weights"
    yield f"                    {night.rented_share:8.1%}   of what was rented, charged or not"
    yield (
        f"preemptions         {night.preemptions:8d}   {night.preempted_measuring} while measuring: "
        f"{night.lost_mean_s:.0f} s of work lost each, at most {night.lost_max_s:.0f} s"
    )
    yield (
        f"machines            {night.machines:8d}   {night.launch_s:.0f} s each until the runner has the cell, "
        f"the goal allows {night.launch_goal_s:.0f} s"
    )
    yield (
        f"  not charged       {night.machines - night.charged:8d}   taken back by AWS within their first hour: "
        f"{(sum(night.rented_s) - billed_s) / 3600:.1f} hours"
    )
    yield f"attempts per cell   {night.attempts_mean:8.2f}   at most {night.attempts_max}"
    kinds = ", ".join(f"{kind} {count / night.cell_h:.0f}" for kind, count in sorted(night.requests.items()))
    yield f"store requests      {night.requests_cell_h:8.0f}   of the flow per cell-hour: {kinds}"
    yield f"no capacity         {night.no_capacity:8d}   times, nothing was rented"
    yield f"on demand           {night.on_demand_share:8.1%}   of the billed hours"
    yield f"cost                {night.usd:8.0f} USD"
    yield (
        f"  always on demand  {night.always_on_demand_usd:8.0f} USD   "
        f"saved {1 - night.usd / night.always_on_demand_usd:.0%}"
    )
    yield (
        f"  spot without loss {night.spot_without_loss_usd:8.0f} USD   "
        f"the night cost {night.usd / night.spot_without_loss_usd - 1:.0%} more"
    )


if __name__ == "__main__":
    sys.exit(main())
