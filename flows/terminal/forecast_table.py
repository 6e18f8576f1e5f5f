"""The forecast as people read it in a terminal: the matrix, budgets, what isn't run and why, and the assumptions."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rich import box
from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from configs.visits import MIRRORED
from flows.forecast.budget import Fit
from flows.forecast.forecast import CellForecast, EvalForecast, Forecast
from flows.matrix import Column, Matrix, sentences, words
from warehouse.ledger.clock import HOUR_S, dollars, duration
from warehouse.report.display.figures import plural

LEGEND = (
    "In points of score. differ: the share of items that two cells are taken to answer differently; the next two rest "
    "on it. sees: the smallest difference that is found, 80 % power at 5 %, two-sided, uncorrected: of a comparison by "
    "itself. carries: the smallest margin within which an equally good technique is shown to be no worse, 80 % power "
    "at 5 %, one-sided, beside all cells that are compared (5 % over their number, below). Hours and dollars are of "
    "all cells; what is measured already costs nothing."
)

MEMORY = (
    "In GB, of all cards. weights; of GB: what the engine takes; KV GB: cache of one request of max_model_len tokens, "
    "at the least (no sliding windows, no linear attention's state); fits: so many of them beside the weights, at most."
)


def render(forecast: Forecast, budgets: Sequence[Fit] = ()) -> Group:
    """Everything that `sweep plan` shows; fits 80 columns."""
    parts: list[RenderableType] = [cells_table(forecast)]
    if any(cell.memory_gb for cell in forecast.cells):
        parts.append(Text(MEMORY))
    parts.append(Text(summary(forecast)))
    if budgets:
        parts += [_heading("Budgets"), budgets_table(budgets)]
    if forecast.evaluations:
        parts += [
            _heading("What each evaluation can show, of a cell beside its reference"),
            evaluations_table(forecast.evaluations, forecast.is_free, forecast.spot),
            Text(LEGEND),
            _pairs((one.step, source(one)) for one in forecast.evaluations),
        ]
    if forecast.left_out:
        parts += [_heading("Left out"), _pairs(forecast.left_out)]
    assumptions = _pairs(("-", sentence) for sentence in forecast.assumptions)
    return Group(*parts, _heading("These are estimates. They rest on:"), assumptions)


def cells_table(forecast: Forecast) -> Matrix:
    """One row per cell: what a run needs of it, then the time of every step (of all evaluations together)."""
    cells, evals = forecast.cells, {one.step for one in forecast.evaluations}
    steps: dict[str, list[str]] = {}
    for step in dict.fromkeys(step.step for cell in cells for step in cell.steps):
        steps.setdefault("evals" if step in evals else step, []).append(step)
    names = words("cell", [cell.label for cell in cells], "total")
    needs = [
        Column("starts", [str(cell.starts) for cell in cells], str(sum(cell.starts for cell in cells))),
        Column(
            "hours" if forecast.is_free else "GPU-h", [f"{cell.gpu_h:.2f}" for cell in cells], f"{forecast.gpu_h:.2f}"
        ),
    ]
    if not forecast.is_free:
        needs.append(Column("spot", [dollars(cell.usd_spot) for cell in cells], dollars(forecast.usd_spot)))
        on_demand = [dollars(cell.usd_on_demand) for cell in cells]
        needs.append(Column("on-dem.", on_demand, dollars(forecast.usd_on_demand)))
    if any(cell.memory_gb for cell in cells):
        needs += [
            Column(name, [digits(getattr(cell, field), places) for cell in cells])
            for name, field, places in (
                ("weights", "weights_gb", 1), ("of GB", "memory_gb", 1), ("KV GB", "request_gb", 2), ("fits", "fits", 0)
            )
        ]  # fmt: skip
    ready_s = [_ready_s(cell) for cell in cells]
    times = [
        Column("tok/s", [f"{cell.tok_s:.0f}" for cell in cells]),
        Column("start", [duration(each_s) for each_s in ready_s], duration(sum(ready_s))),
    ]
    for name, those in steps.items():
        total_s = sum(_steps_s(cell, those) for cell in cells)
        times.append(Column(name, [_steps_text(cell, those) for cell in cells], duration(total_s)))
    return Matrix([names], [*needs, *times], f"{forecast.sweep} on {forecast.gpu}, expected", has_total=True)


def digits(figure: float | None, places: int) -> str:
    """A figure with so many decimals, or a dash where it isn't known."""
    return "-" if figure is None else f"{figure:.{places}f}"


def summary(forecast: Forecast) -> str:
    """The plan in few lines: cells, steps left, hours until done, dollars, and why they aren't those of spot."""
    states = [step.state for cell in forecast.cells for step in cell.steps]
    left, done = states.count("to measure"), states.count("measured")
    price = dollars(forecast.usd_spot if forecast.spot else forecast.usd_on_demand)
    cost = "free" if forecast.is_free else f"{price} {'spot' if forecast.spot else 'on demand'}"
    why = f"On demand: {forecast.why_on_demand}.\n" if forecast.why_on_demand else ""
    at_once = f"{forecast.concurrency} at a time" if forecast.concurrency > 1 else "one after another"
    return (
        f"{plural(len(forecast.cells), 'cell')}, {plural(left, 'step')} to measure, {done} measured: about "
        f"{duration(forecast.wall_h * HOUR_S)}, {at_once}; {cost}.\n{why}{_visits(forecast)}"
    )


def _visits(forecast: Forecast) -> str:
    """In how many engine starts speeds are measured, what the controls cost, and what may be claimed of it."""
    visits = sum(cell.starts for cell in forecast.cells)
    if forecast.visits == "single":
        return f"{plural(visits, 'engine start')}, one per cell: no claim about a speedup (visits: single)."
    if forecast.visits in MIRRORED:
        middle = ", AR also in the middle" if forecast.visits == "balanced" else ""
        said = f"{visits} engine starts: all cells forwards, then backwards{middle} (visits: {forecast.visits})."
        with_k = plural(forecast.droppable, "cell")
        dropped = (
            f"\nOf the {with_k} with a K, those that are too slow by then to be recommended are not visited again "
            "(drop: after_first_visit): what they take is in the figures above, as if none were."
        )
        return said + (dropped if forecast.droppable else "")
    prices = [
        dollars(usd * forecast.control_gpu_h / forecast.gpu_h)
        for usd in (forecast.usd_spot, forecast.usd_on_demand)
        if usd is not None and forecast.gpu_h
    ]
    cost = f", {' spot, '.join(prices)} on demand" if len(prices) == 2 else ""
    if not forecast.control_gpu_h:
        return f"{visits} engine starts, those of a cell on one machine (visits: bracketed)."
    return (
        f"{visits} engine starts: control, cell, control on one machine (visits: bracketed); the controls take "
        f"{forecast.control_gpu_h:.2f} GPU-h of it{cost}."
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
        why = "no price" if fit.left_usd is None else "too much"
        word = Text("fits", style="green") if fit.fits else Text(f"{why}: will not start", style="red")
        figures = (dollars(fit.spent_usd), dollars(fit.left_usd), dollars(fit.budget_usd))
        table.add_row(fit.field, fit.who, *figures, word)
    return table


def _pairs(rows: Iterable[tuple[str, str]]) -> Table:
    table = Table(box=None, show_header=False, padding=(0, 1, 0, 1))
    table.add_column(no_wrap=True)
    table.add_column(ratio=1)
    for row in rows:
        table.add_row(*row)
    return table


def _heading(text: str) -> Padding:
    return Padding(Text(text, style="bold"), (1, 0, 0, 0))


def _steps_s(cell: CellForecast, names: Sequence[str]) -> float:
    """Seconds still to be spent on some steps of a cell, in all its starts and its control's."""
    return sum(step.seconds for step in cell.steps if step.step in names)


def _steps_text(cell: CellForecast, names: Sequence[str]) -> str:
    states = {step.state for step in cell.steps if step.step in names}
    return "done" if states == {"measured"} else duration(_steps_s(cell, names))


def _ready_s(cell: CellForecast) -> float:
    """Seconds in which nothing is measured: launch, and all engine starts."""
    return cell.launch_s + cell.start_s + cell.control_start_s


def evaluations_table(evaluations: Sequence[EvalForecast], is_free: bool, spot: bool) -> Matrix:
    """One row per evaluation: n, tokens, hours, dollars, what n can show, and what its margin would take."""
    costs = [one.cost for one in evaluations]
    columns = [
        Column("n", [_n(one.items, one.samples) for one in evaluations]),
        Column("tokens", [f"{one.tokens / 1e6:.1f}M" for one in evaluations]),
        Column("hours" if is_free else "GPU-h", [f"{cost.gpu_h:.1f}" for cost in costs]),
    ]
    if not is_free:
        columns.append(Column("spot", [dollars(cost.usd_spot) for cost in costs]))
        columns.append(Column("on-dem.", [dollars(cost.usd_on_demand) for cost in costs]))
    columns += [
        Column("differ", [f"{one.discordance:.0%}" for one in evaluations]),
        Column("sees", [points(one.smallest_difference) for one in evaluations]),
        Column("carries", [points(one.carried_margin) for one in evaluations]),
        Column("margin", [points(one.margin) for one in evaluations]),
        sentences("enough?", [_verdict(one, is_free, spot) for one in evaluations]),
    ]
    return Matrix([words("eval", [one.step for one in evaluations])], columns)


def source(one: EvalForecast) -> str:
    """Whose items, at which revision, through which framework, and how many cells are compared."""
    parts = [f"{one.title} through {one.framework}, {one.items} of {one.items_there} items"]
    revision = "" if one.revision is None else f" at {one.revision[:12]}"
    parts.append(f"{one.dataset}{revision}{' (gated: HF_TOKEN)' if one.gated else ''}")
    parts.append("1 compared cell" if one.comparisons == 1 else f"beside {one.comparisons} compared cells")
    parts.append("looked at once, at the end")
    return "; ".join(parts)


def points(share: float) -> str:
    """A share of the items as points of score: 0.077 is 7.7."""
    return f"{100 * share:.1f}"


def _n(items: int, samples: int) -> str:
    return str(items) if samples == 1 else f"{items}x{samples}"


def _verdict(one: EvalForecast, is_free: bool, spot: bool) -> Text:
    """Whether n supports the stated margin; if not, what would, and at which price."""
    if one.needed is None:
        return Text("enough", style="green")
    needed, cost = _n(one.needed.items, one.needed.samples), one.needed.cost
    price = "" if is_free else f", {dollars(cost.usd_spot if spot else cost.usd_on_demand)}"
    return Text(f"too few, {needed} would do: {cost.gpu_h:.1f} h{price}", style="yellow")
