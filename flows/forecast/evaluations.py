"""What each evaluation of a plan will cost, and what its n can show: said before any of it is paid for.

The statistics are `warehouse/dataset/statistics/proportions.py`; hours and dollars are the rest of the forecast's.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from configs.frozen import Frozen
from configs.schema import Plan, PlannedCell
from configs.steps.eval import HUB, TWIN, EvalStep
from flows.forecast.estimates import step_s
from warehouse.dataset.statistics.proportions import carried_margin, detectable, items_needed, samples_needed
from warehouse.ledger.clock import HOUR_S, usd_of

TWIN_NOTE, NEWEST = "self-made twin", "newest"
"""Where items come from if neither the hub nor a file; what stands for a revision that nobody pinned."""


class Cost(Frozen):
    """Time and money of one evaluation over cells; dollars are None where there is no price."""

    gpu_h: float
    usd_spot: float | None
    usd_on_demand: float | None


class EvalNeed(Frozen):
    """How much would carry the stated margin, and what all of that would cost over every cell."""

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
    """Every evaluation of a plan, in the order in which they run.

    `committed`: cell key to the names of the steps that this run has committed.
    """
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
    compared = max(1, sum(not planned.cell.technique.is_baseline for planned in cells))
    carried = carried_margin(n, share, samples, compared)
    return EvalForecast(
        step=step.step,
        title=step.suite.title,
        framework=step.framework,
        dataset=_dataset(step),
        revision=(step.revision or step.suite.revision or NEWEST) if step.dataset == HUB else None,
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
        return f"{TWIN_NOTE} of {step.suite.title}"
    return step.suite.hub_id if step.dataset == HUB else step.dataset


def total(costs: Sequence[float | None]) -> float | None:
    """The sum of dollars, or None if any of them isn't known."""
    known = [cost for cost in costs if cost is not None]
    return sum(known) if len(known) == len(costs) else None
