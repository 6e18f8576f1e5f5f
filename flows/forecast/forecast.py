"""What a run will take: hours and dollars per cell, from the plan and what is committed.

It also says what an evaluation can show, before it is paid for (`warehouse/dataset/statistics/proportions.py`).
Pure: no network, no store, no Prefect. The caller passes in the steps that the ledger already holds.
"""

from __future__ import annotations

import heapq
from collections.abc import Collection, Mapping, Sequence
from typing import Literal

from configs.checks.engine import copies, memory_gb, weights_gb
from configs.frozen import Frozen
from configs.schema import Plan, PlannedCell
from configs.steps.eval import HUB, TWIN, EvalStep
from configs.visits import Design, without
from flows.forecast.estimates import (
    GPU_LAUNCH_S,
    assumptions,
    carried_requests,
    decode_tok_s,
    kv_gb,
    measurement_s,
    ready_s,
    start_s,
    step_s,
)
from warehouse.dataset.statistics.proportions import carried_margin, detectable, items_needed, samples_needed
from warehouse.ledger.clock import HOUR_S, usd_of


class Cost(Frozen):
    """Time and money of one evaluation over cells; dollars are None where there is no price."""

    gpu_h: float
    usd_spot: float | None
    usd_on_demand: float | None


class EvalNeed(Frozen):
    """How many items and samples support the stated margin, and what all of them would cost over every cell."""

    items: int
    samples: int
    cost: Cost


class EvalForecast(Frozen):
    """One evaluation over all cells that have it. Scores and differences are shares: 0.05 is five points.

    `cost` and `tokens` are what is still to be spent. `smallest_difference`, `carried_margin` and `needed` hold for one
    technique against its AR cell, at the stated discordance. The last two are of one among `comparisons`, all of which
    get a verdict; `smallest_difference` is of a comparison by itself.
    """

    step: str
    title: str
    framework: str
    dataset: str
    revision: str | None
    gated: bool
    cells: int
    cells_left: int
    comparisons: int
    items: int
    items_there: int
    samples: int
    tokens: int
    cost: Cost
    discordance: float
    smallest_difference: float
    carried_margin: float
    margin: float
    looks: tuple[float] = (1.0,)
    needed: EvalNeed | None


def eval_forecasts(plan: Plan, committed: Mapping[str, Collection[str]]) -> tuple[EvalForecast, ...]:
    """Every evaluation of a plan, in the order in which they run; `committed`: of each cell key, names of steps."""
    found: dict[str, list[tuple[PlannedCell, EvalStep]]] = {}
    for planned in plan.cells:
        for step in planned.steps:
            if isinstance(step, EvalStep):
                found.setdefault(step.step, []).append((planned, step))
    return tuple(_eval_forecast(having, committed) for having in found.values())


def _eval_forecast(
    having: Sequence[tuple[PlannedCell, EvalStep]], committed: Mapping[str, Collection[str]]
) -> EvalForecast:
    """One evaluation; a suite gives every cell the same step, so the first one stands for all."""
    step, cells = having[0][1], [planned for planned, _ in having]
    left = [planned for planned in cells if step.step not in committed.get(planned.cell.cell_key, ())]
    loads = [load for planned in left for load in step.workload(planned.cell)]
    n, share, samples = step.n_items, step.discordance, step.samples
    drafted = sum(not planned.cell.technique.is_baseline for planned in cells)
    compared = max(1, drafted + sum(planned.held_against is not None for planned in cells))
    carried = carried_margin(n, share, samples, compared)
    return EvalForecast(
        step=step.step,
        title=step.suite.title,
        framework=step.framework,
        dataset=_dataset(step),
        revision=(step.revision or step.suite.revision or "newest") if step.dataset == HUB else None,
        gated=step.dataset == HUB and step.suite.gated,
        cells=len(cells),
        cells_left=len(left),
        comparisons=compared,
        items=n,
        items_there=step.items_there,
        samples=samples,
        tokens=sum(load.requests * (load.prompt_tokens + load.output_tokens) for load in loads),
        cost=_cost(left, step),
        discordance=share,
        smallest_difference=detectable(n, share, samples),
        carried_margin=carried,
        margin=step.margin,
        needed=None if carried <= step.margin else _need(cells, step, compared),
    )


def _need(cells: Sequence[PlannedCell], step: EvalStep, comparisons: int) -> EvalNeed:
    """More items where the suite has them, else all of its items and more answers to each."""
    items = items_needed(step.margin, step.discordance, step.samples, comparisons)
    samples = step.samples
    if items > step.items_there:
        items = step.items_there
        samples = samples_needed(items, step.margin, step.discordance, comparisons)
    enough = step.model_copy(update={"items": items, "samples": samples})
    return EvalNeed(items=items, samples=samples, cost=_cost(cells, enough))


def _cost(cells: Sequence[PlannedCell], step: EvalStep) -> Cost:
    seconds = [(planned.gpu, step_s(planned, step) * planned.cell.cards) for planned in cells]
    return Cost(
        gpu_h=sum(each_s for _, each_s in seconds) / HOUR_S,
        usd_spot=total([usd_of(gpu.price_spot_usd_h, each_s) for gpu, each_s in seconds]),
        usd_on_demand=total([usd_of(gpu.price_on_demand_usd_h, each_s) for gpu, each_s in seconds]),
    )


def _dataset(step: EvalStep) -> str:
    if step.dataset == TWIN:
        return f"self-made twin of {step.suite.title}"
    return step.suite.hub_id if step.dataset == HUB else step.dataset


def total(costs: Sequence[float | None]) -> float | None:
    """The sum of dollars, or None if any of them isn't known."""
    known = [cost for cost in costs if cost is not None]
    return sum(known) if len(known) == len(costs) else None


ForecastState = Literal["measured", "to measure"]  # committed already, or still to do
HEADLINE_CONTEXT_TOKENS = 256  # context at which a cell's expected speed is shown


class StepForecast(Frozen):
    """One step of a cell or its control, in one start; `name` is the ledger's, `seconds` are still to be spent."""

    step: str
    name: str
    state: ForecastState
    seconds: float
    is_control: bool = False


class CellForecast(Frozen):
    """One cell: what is still to do, and what that costs; a cell that is measured costs nothing."""

    cell_key: str
    label: str
    tok_s: float
    launch_s: float
    start_s: float
    control_start_s: float
    starts: int
    cards: int
    weights_gb: float
    """Of all its copies."""
    memory_gb: float | None
    """Of all its cards, what the engine takes."""
    request_gb: float | None
    """Key/value cache of one request of max_model_len tokens, at the least."""
    fits: int | None
    """Such requests that the cards hold beside the weights, at the most."""
    steps: tuple[StepForecast, ...]
    usd_spot: float | None
    usd_on_demand: float | None

    @property
    def total_s(self) -> float:
        """Launch, starts and every step still to measure, the control's included."""
        return self.launch_s + self.start_s + self.control_start_s + sum(step.seconds for step in self.steps)

    @property
    def control_s(self) -> float:
        """The control's part of it."""
        return self.control_start_s + sum(step.seconds for step in self.steps if step.is_control)

    @property
    def gpu_h(self) -> float:
        """The same in GPU-hours, of all its cards."""
        return self.total_s * self.cards / HOUR_S


class Forecast(Frozen):
    """A whole plan: its cells, its evaluations, what isn't run, and what the figures rest on."""

    sweep: str
    gpu: str
    is_free: bool
    spot: bool
    """Whether it is priced as spot: asked for, and what our policy would rent first."""
    why_on_demand: str | None
    """Why it isn't although the sweep asks for spot."""
    concurrency: int
    visits: Design
    droppable: int
    """Cells that are not started again if their K is out by then."""
    cells: tuple[CellForecast, ...]
    evaluations: tuple[EvalForecast, ...]
    left_out: tuple[tuple[str, str], ...]
    assumptions: tuple[str, ...]

    @property
    def gpu_h(self) -> float:
        """GPU-hours of all cells."""
        return sum(cell.gpu_h for cell in self.cells)

    @property
    def control_gpu_h(self) -> float:
        """GPU-hours of all controls."""
        return sum(cell.control_s * cell.cards for cell in self.cells) / HOUR_S

    @property
    def usd_spot(self) -> float | None:
        """Dollars at the spot price; None if there is none."""
        return total([cell.usd_spot for cell in self.cells])

    @property
    def usd_on_demand(self) -> float | None:
        """Dollars at the on-demand price; None if there is none."""
        return total([cell.usd_on_demand for cell in self.cells])

    @property
    def wall_h(self) -> float:
        """Hours until the last cell is done, each of `concurrency` places taking the next one when free."""
        places = [0.0] * self.concurrency
        for cell in self.cells:
            heapq.heapreplace(places, places[0] + cell.total_s)
        return max(places) / HOUR_S


def forecast(plan: Plan, committed: Mapping[str, Collection[str]], *, why_on_demand: str | None = None) -> Forecast:
    """Estimate a plan; `committed`: of each cell key, names of steps. `why_on_demand`: see `site.expected`."""
    spot = why_on_demand is None and any(planned.spot for planned in plan.cells)
    rented = plan.cloud is not None
    return Forecast(
        sweep=plan.sweep,
        gpu=plan.gpu.name,
        is_free=plan.gpu.price_spot_usd_h == 0 and plan.gpu.price_on_demand_usd_h == 0,
        spot=spot,
        why_on_demand=why_on_demand,
        concurrency=plan.concurrency if rented else 1,  # engines of one machine take turns (tasks/engine/machine.py)
        visits=plan.cells[0].visits if plan.cells else "single",
        droppable=sum(planned.drop == "after_first_visit" for planned in plan.cells),
        cells=tuple(_cell_forecast(one, committed.get(one.cell.cell_key, ()), rented=rented) for one in plan.cells),
        evaluations=eval_forecasts(plan, committed),
        left_out=plan.left_out,
        assumptions=assumptions(plan, spot=spot),
    )


def _cell_forecast(planned: PlannedCell, done: Collection[str], *, rented: bool) -> CellForecast:
    """One cell; launch and starts are spent only if some step is still to measure."""
    cell, gpu = planned.cell, planned.gpu
    left = without(planned.starts, done)
    controls = sum(start.served != cell for start in left)
    steps = tuple(
        StepForecast(
            step=each.spec.step,
            name=each.name,
            state="measured" if each.name in done else "to measure",
            seconds=0.0 if each.name in done else measurement_s(planned, start.served, each),
            is_control=each.is_control,
        )
        for start in planned.starts
        for each in start.measurements
    )
    launch = GPU_LAUNCH_S if left and rented and gpu.bandwidth_gb_s is not None else 0.0
    ready, control = ready_s(planned, left, rented=rented), controls * start_s(gpu)
    total_s, has_gb = launch + ready + sum(step.seconds for step in steps), memory_gb(cell, gpu)
    return CellForecast(
        cell_key=cell.cell_key,
        label=cell.label,
        tok_s=decode_tok_s(cell, gpu, HEADLINE_CONTEXT_TOKENS),
        launch_s=launch,
        start_s=ready - control,
        control_start_s=control,
        starts=len(planned.starts),
        cards=cell.cards,
        weights_gb=weights_gb(cell) * copies(cell),
        memory_gb=None if has_gb is None else has_gb * cell.cards,
        request_gb=kv_gb(cell, cell.serving.max_model_len) or None,
        fits=carried_requests(cell, gpu, cell.serving.max_model_len),
        steps=steps,
        usd_spot=usd_of(gpu.price_spot_usd_h, total_s * cell.cards),
        usd_on_demand=usd_of(gpu.price_on_demand_usd_h, total_s * cell.cards),
    )
