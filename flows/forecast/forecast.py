"""What a run will take: hours and dollars per cell, from the plan and what is committed.

Pure: no network, no store, no Prefect. The caller passes in the steps that the ledger already holds.
"""

from __future__ import annotations

import heapq
from collections.abc import Collection, Mapping
from typing import Literal

from configs.frozen import Frozen
from configs.schema import Plan, PlannedCell
from configs.step import MeasuredStep, StepSpec
from flows.forecast.decoding import decode_tok_s
from flows.forecast.estimates import assumptions, launch_s, start_s, step_s
from flows.forecast.evaluations import EvalForecast, eval_forecasts, total
from warehouse.clock import HOUR_S
from warehouse.price import usd_of

ForecastState = Literal["measured", "to measure", "not built yet"]
"""Committed already, still to do, or planned but beyond this version."""

HEADLINE_CONTEXT_TOKENS = 256
"""Context at which a cell's expected speed is shown."""


class StepForecast(Frozen):
    """One step of one cell; `seconds` is what is still to be spent on it."""

    step: str
    state: ForecastState
    seconds: float


class CellForecast(Frozen):
    """One cell: what is still to do, and what that costs; a cell that is measured costs nothing."""

    cell_key: str
    label: str
    tok_s: float
    launch_s: float
    start_s: float
    steps: tuple[StepForecast, ...]
    usd_spot: float | None
    usd_on_demand: float | None

    @property
    def total_s(self) -> float:
        """Launch, start and every step still to measure."""
        return self.launch_s + self.start_s + sum(step.seconds for step in self.steps)

    @property
    def gpu_h(self) -> float:
        """The same in GPU-hours: a cell has one GPU."""
        return self.total_s / HOUR_S


class Forecast(Frozen):
    """A whole plan: its cells, its evaluations, what isn't run, and what the figures rest on."""

    sweep: str
    gpu: str
    is_free: bool
    spot: bool
    concurrency: int
    cells: tuple[CellForecast, ...]
    evaluations: tuple[EvalForecast, ...]
    left_out: tuple[tuple[str, str], ...]
    assumptions: tuple[str, ...]

    @property
    def gpu_h(self) -> float:
        """GPU-hours of all cells."""
        return sum(cell.gpu_h for cell in self.cells)

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

    @property
    def unbuilt(self) -> dict[str, int]:
        """Steps that this version can't run, and in how many cells they are planned."""
        names = [step.step for cell in self.cells for step in cell.steps if step.state == "not built yet"]
        return {name: names.count(name) for name in dict.fromkeys(names)}


def forecast(plan: Plan, committed: Mapping[str, Collection[str]]) -> Forecast:
    """Estimate a plan.

    Args:
        plan: From `configs.expand.expand`.
        committed: Cell key to the names of the steps that this run has already committed.

    Returns:
        Seconds, GPU-hours and dollars per cell; steps that aren't built are named and cost nothing.
    """
    spot = any(planned.spot for planned in plan.cells)
    methods = {str(planned.cell.technique.method) for planned in plan.cells}
    evaluations = eval_forecasts(plan, committed)
    return Forecast(
        sweep=plan.sweep,
        gpu=plan.gpu.name,
        is_free=plan.gpu.price_spot_usd_h == 0 and plan.gpu.price_on_demand_usd_h == 0,
        spot=spot,
        concurrency=plan.concurrency,
        cells=tuple(_cell_forecast(one, committed.get(one.cell.cell_key, ())) for one in plan.cells),
        evaluations=evaluations,
        left_out=plan.left_out,
        assumptions=assumptions(plan.gpu, methods, spot, has_evals=bool(evaluations)),
    )


def _cell_forecast(planned: PlannedCell, done: Collection[str]) -> CellForecast:
    """One cell; launch and start are spent only if some step is still to measure."""
    cell, gpu = planned.cell, planned.gpu
    steps = tuple(_step_forecast(planned, step, done) for step in planned.steps)
    needed = any(step.state == "to measure" for step in steps)
    launch, start = (launch_s(gpu), start_s(cell, gpu)) if needed else (0.0, 0.0)
    total_s = launch + start + sum(step.seconds for step in steps)
    return CellForecast(
        cell_key=cell.cell_key,
        label=cell.label,
        tok_s=decode_tok_s(cell, gpu, HEADLINE_CONTEXT_TOKENS),
        launch_s=launch,
        start_s=start,
        steps=steps,
        usd_spot=usd_of(gpu.price_spot_usd_h, total_s),
        usd_on_demand=usd_of(gpu.price_on_demand_usd_h, total_s),
    )


def _step_forecast(planned: PlannedCell, step: StepSpec, done: Collection[str]) -> StepForecast:
    """One step; what is committed or can't be run yet takes no time."""
    if step.step in done:
        return StepForecast(step=step.step, state="measured", seconds=0.0)
    if not isinstance(step, MeasuredStep):
        return StepForecast(step=step.step, state="not built yet", seconds=0.0)
    return StepForecast(step=step.step, state="to measure", seconds=step_s(planned, step))
