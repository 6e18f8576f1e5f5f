"""What a run will take: hours and dollars per cell, from the plan and what is committed.

Pure: no network, no store, no Prefect. The caller passes in the steps that the ledger already holds.
"""

from __future__ import annotations

import heapq
from collections.abc import Collection, Mapping
from typing import Literal

from configs.frozen import Frozen
from configs.schema import Plan, PlannedCell
from configs.visits import Design, Measurement, Start, without
from flows.forecast.decoding import decode_tok_s
from flows.forecast.estimates import GPU_LAUNCH_S, assumptions, measurement_s, ready_s, start_s
from flows.forecast.evaluations import EvalForecast, eval_forecasts, total
from warehouse.ledger.clock import HOUR_S, usd_of

ForecastState = Literal["measured", "to measure"]
"""Committed already, still to do, or planned but beyond this version."""

HEADLINE_CONTEXT_TOKENS = 256
"""Context at which a cell's expected speed is shown."""


class StepForecast(Frozen):
    """One step of one cell, in one start; `seconds` is what is still to be spent on it.

    `name` is its name in the ledger, start included. `is_control`: the cell's AR twin is measured, not the cell.
    """

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
    """Estimate a plan.

    `committed`: cell key to the names of the steps that this run has committed. `why_on_demand`: of
    `flows.renting.site.expected`.

    Returns:
        Seconds, GPU-hours and dollars per cell.
    """
    spot = why_on_demand is None and any(planned.spot for planned in plan.cells)
    rented = plan.cloud is not None
    methods = {str(planned.cell.technique.method) for planned in plan.cells}
    generates = any(planned.cell.engine.kind == "transformers" for planned in plan.cells)
    evaluations = eval_forecasts(plan, committed)
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
        evaluations=evaluations,
        left_out=plan.left_out,
        assumptions=assumptions(
            plan.gpu,
            methods,
            spot,
            has_evals=bool(evaluations),
            rented=rented,
            generates=generates,
            cards=max((planned.cell.cards for planned in plan.cells), default=1),
        ),
    )


def _cell_forecast(planned: PlannedCell, done: Collection[str], *, rented: bool) -> CellForecast:
    """One cell; launch and starts are spent only if some step is still to measure."""
    cell, gpu = planned.cell, planned.gpu
    left = without(planned.starts, done)
    controls = sum(start.served != cell for start in left)
    steps = tuple(_step_forecast(planned, start, each, done) for start in planned.starts for each in start.measurements)
    launch = GPU_LAUNCH_S if left and rented and gpu.bandwidth_gb_s is not None else 0.0
    ready, control = ready_s(planned, left, rented=rented), controls * start_s(gpu)
    total_s = launch + ready + sum(step.seconds for step in steps)
    return CellForecast(
        cell_key=cell.cell_key,
        label=cell.label,
        tok_s=decode_tok_s(cell, gpu, HEADLINE_CONTEXT_TOKENS),
        launch_s=launch,
        start_s=ready - control,
        control_start_s=control,
        starts=len(planned.starts),
        cards=cell.cards,
        steps=steps,
        usd_spot=usd_of(gpu.price_spot_usd_h, total_s * cell.cards),
        usd_on_demand=usd_of(gpu.price_on_demand_usd_h, total_s * cell.cards),
    )


def _step_forecast(planned: PlannedCell, start: Start, measurement: Measurement, done: Collection[str]) -> StepForecast:
    is_done = measurement.name in done
    return StepForecast(
        step=measurement.spec.step,
        name=measurement.name,
        state="measured" if is_done else "to measure",
        seconds=0.0 if is_done else measurement_s(planned, start.served, measurement),
        is_control=measurement.is_control,
    )
