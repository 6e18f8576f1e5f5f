"""The forecast as people read it in a terminal: the matrix, budgets, what isn't run and why, and the assumptions."""

from __future__ import annotations

from collections.abc import Sequence

from rich import box
from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from configs.visits import MIRRORED
from flows.forecast.budget import Fit
from flows.forecast.forecast import CellForecast, Forecast
from flows.terminal.tables import evaluation_table
from warehouse.clock import HOUR_S, duration
from warehouse.price import dollars

EVALS = "evals"
"""The column that all evaluations share."""

CELL_COLUMNS = 20
"""Narrowest that a cell's name may get; it wraps, so that nothing is cut where the terminal is narrow."""


def render(forecast: Forecast, budgets: Sequence[Fit] = ()) -> Group:
    """Everything that `sweep plan` shows; fits 100 columns."""
    parts: list[RenderableType] = [cells_table(forecast), Text(summary(forecast))]
    if budgets:
        parts += [_heading("Budgets"), budgets_table(budgets)]
    if forecast.evaluations:
        parts += [_heading(evaluation_table.HEADING), *_evaluations(forecast)]
    if forecast.left_out:
        parts += [_heading("Left out"), left_out_table(forecast)]
    parts += [_heading("These are estimates. They rest on:"), assumptions_table(forecast)]
    return Group(*parts)


def cells_table(forecast: Forecast) -> Table:
    """The matrix: one row per cell, one column per step, and the totals.

    All evaluations share one column: each has a row of its own further down.
    """
    columns = _columns(forecast)
    title = f"{forecast.sweep} on {forecast.gpu}, expected"
    table = Table(box=box.SIMPLE_HEAD, title=title, title_justify="left", show_footer=True, padding=0)
    table.add_column("cell", "total", min_width=CELL_COLUMNS)
    table.add_column("tok/s", justify="right", no_wrap=True)
    ready_s = sum(_ready_s(cell) for cell in forecast.cells)
    table.add_column("start", duration(ready_s), justify="right", no_wrap=True)
    for name, steps in columns.items():
        total_s = sum(_steps_s(cell, steps) for cell in forecast.cells)
        table.add_column(name, duration(total_s), justify="right", no_wrap=True)
    hours = "hours" if forecast.is_free else "GPU-h"
    table.add_column(hours, f"{forecast.gpu_h:.2f}", justify="right", no_wrap=True)
    if not forecast.is_free:
        table.add_column("spot", dollars(forecast.usd_spot), justify="right", no_wrap=True)
        table.add_column("on-dem.", dollars(forecast.usd_on_demand), justify="right", no_wrap=True)
    for cell in forecast.cells:
        times = [duration(_ready_s(cell)), *(_steps_text(cell, steps) for steps in columns.values())]
        prices = [] if forecast.is_free else [dollars(cell.usd_spot), dollars(cell.usd_on_demand)]
        table.add_row(cell.label, f"{cell.tok_s:.0f}", *times, f"{cell.gpu_h:.2f}", *prices)
    return table


def summary(forecast: Forecast) -> str:
    """The plan in few lines: cells, steps left, hours until done, dollars, and why they aren't those of spot."""
    states = [step.state for cell in forecast.cells for step in cell.steps]
    left, done = states.count("to measure"), states.count("measured")
    price = dollars(forecast.usd_spot if forecast.spot else forecast.usd_on_demand)
    cost = "free" if forecast.is_free else f"{price} {'spot' if forecast.spot else 'on demand'}"
    why = f"On demand: {forecast.why_on_demand}.\n" if forecast.why_on_demand else ""
    at_once = f"{forecast.concurrency} at a time" if forecast.concurrency > 1 else "one after another"
    return (
        f"{len(forecast.cells)} cells, {left} steps to measure, {done} measured: about "
        f"{duration(forecast.wall_h * HOUR_S)}, {at_once}; {cost}.\n{why}{_visits(forecast)}"
    )


def _visits(forecast: Forecast) -> str:
    """In how many engine starts speeds are measured, what the controls cost, and what may be claimed of it."""
    visits = sum(cell.starts for cell in forecast.cells)
    if forecast.visits == "single":
        return f"{visits} engine starts, one per cell: no claim about a speedup (visits: single)."
    if forecast.visits in MIRRORED:
        middle = ", AR also in the middle" if forecast.visits == "balanced" else ""
        said = f"{visits} engine starts: all cells forwards, then backwards{middle} (visits: {forecast.visits})."
        return said + (_droppable(forecast) if forecast.droppable else "")
    prices = [
        dollars(usd * forecast.control_gpu_h / forecast.gpu_h)
        for usd in (forecast.usd_spot, forecast.usd_on_demand)
        if usd is not None and forecast.gpu_h
    ]
    cost = f", {' spot, '.join(prices)} on demand" if len(prices) == 2 else ""
    return (
        f"{visits} engine starts: control, cell, control on one machine (visits: bracketed); the controls take "
        f"{forecast.control_gpu_h:.2f} GPU-h of it{cost}."
    )


def _droppable(forecast: Forecast) -> str:
    """What may be left out of the figures above."""
    return (
        f"\nOf the {forecast.droppable} cells with a K, those that are too slow by then to be recommended are not "
        "visited again (drop: after_first_visit): what they take is in the figures above, as if none were."
    )


def budgets_table(budgets: Sequence[Fit]) -> Table:
    """One row per budget: what was spent, what is forecast, and whether both fit."""
    table = Table(box=box.SIMPLE_HEAD, padding=0)
    table.add_column("budget", no_wrap=True)
    table.add_column("of", overflow="fold")
    for name in ("spent", "forecast", "limit"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("", no_wrap=True)
    for fit in budgets:
        word, style = _fit(fit)
        figures = (dollars(fit.spent_usd), dollars(fit.left_usd), dollars(fit.budget_usd))
        table.add_row(fit.field, fit.who, *figures, Text(word, style=style))
    return table


def left_out_table(forecast: Forecast) -> Table:
    """What is in the sweep's file, but isn't run, and why."""
    table = _plain_table()
    for label, reason in forecast.left_out:
        table.add_row(label, reason)
    return table


def assumptions_table(forecast: Forecast) -> Table:
    """What the figures rest on, a sentence per row."""
    table = _plain_table()
    for sentence in forecast.assumptions:
        table.add_row("-", sentence)
    return table


def _fit(fit: Fit) -> tuple[str, str]:
    """Whether a budget lets the run start, in words, and their colour."""
    if fit.fits:
        return "fits", "green"
    return ("no price: will not start" if fit.left_usd is None else "too much: will not start"), "red"


def _plain_table() -> Table:
    """Two columns without lines, slightly indented; the second one wraps."""
    table = Table(box=None, show_header=False, padding=(0, 1, 0, 1))
    table.add_column(no_wrap=True)
    table.add_column(ratio=1)
    return table


def _heading(text: str) -> Padding:
    """A heading with a blank line before it."""
    return Padding(Text(text, style="bold"), (1, 0, 0, 0))


def _evaluations(forecast: Forecast) -> list[RenderableType]:
    """What each evaluation costs and can show, what the words mean, and where its items come from."""
    table = evaluation_table.evaluations_table(forecast.evaluations, forecast.is_free, forecast.spot)
    return [table, Text(evaluation_table.LEGEND), evaluation_table.sources_table(forecast.evaluations)]


def _columns(forecast: Forecast) -> dict[str, list[str]]:
    """The steps that can be run, in the order in which they are run, under the name of their column."""
    evals = {one.step for one in forecast.evaluations}
    columns: dict[str, list[str]] = {}
    for step in (step.step for cell in forecast.cells for step in cell.steps):
        steps = columns.setdefault(EVALS if step in evals else step, [])
        if step not in steps:
            steps.append(step)
    return columns


def _steps_s(cell: CellForecast, names: Sequence[str]) -> float:
    """Seconds still to be spent on some steps of a cell, in all its visits and its control's."""
    return sum(step.seconds for step in cell.steps if step.step in names)


def _steps_text(cell: CellForecast, names: Sequence[str]) -> str:
    """`done`, a length of time, or `-` where the cell has none of the steps."""
    states = {step.state for step in cell.steps if step.step in names}
    return "done" if states == {"measured"} else duration(_steps_s(cell, names))


def _ready_s(cell: CellForecast) -> float:
    """Seconds in which nothing is measured: launch, and all engine starts."""
    return cell.launch_s + cell.start_s + cell.control_start_s
