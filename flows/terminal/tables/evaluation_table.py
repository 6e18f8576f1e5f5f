"""What each evaluation of a plan can show, as people read it in a terminal before they pay for it."""

from __future__ import annotations

from collections.abc import Sequence

from rich import box
from rich.table import Table
from rich.text import Text

from flows.forecast.evaluations import Cost, EvalForecast
from warehouse.price import dollars

MILLION = 1e6

HEADING = "What each evaluation can show, of a technique beside its AR cell"

LEGEND = (
    "In points of score. differ: the share of items that two cells are taken to answer differently; the next two rest "
    "on it. sees: the smallest difference that is found, 80 % power at 5 %, two-sided, uncorrected: of a comparison by "
    "itself. carries: the smallest margin within which an equally good technique is shown to be no worse, 80 % power "
    "at 5 %, one-sided, beside all cells that are compared (5 % over their number, below). Hours and dollars are of "
    "all cells; what is measured already costs nothing."
)


def evaluations_table(evaluations: Sequence[EvalForecast], is_free: bool, spot: bool) -> Table:
    """One row per evaluation: n, tokens, hours, dollars, what n can show, and what its margin would take."""
    table = Table(box=box.SIMPLE_HEAD, padding=0)
    table.add_column("eval", no_wrap=True)
    for name in ("n", "tokens", "hours" if is_free else "GPU-h", *([] if is_free else ["spot", "on-dem."])):
        table.add_column(name, justify="right", no_wrap=True)
    for name in ("differ", "sees", "carries", "margin"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("")
    for one in evaluations:
        prices = [] if is_free else [dollars(one.cost.usd_spot), dollars(one.cost.usd_on_demand)]
        table.add_row(
            one.step,
            _n(one.items, one.samples),
            f"{one.tokens / MILLION:.1f}M",
            f"{one.cost.gpu_h:.1f}",
            *prices,
            f"{one.discordance:.0%}",
            points(one.smallest_difference),
            points(one.carried_margin),
            points(one.margin),
            _verdict(one, is_free, spot),
        )
    return table


def sources_table(evaluations: Sequence[EvalForecast]) -> Table:
    """One row per evaluation: whose items, through which framework, and when it may stop."""
    table = Table(box=None, show_header=False, padding=(0, 1, 0, 1))
    table.add_column(no_wrap=True)
    table.add_column(ratio=1)
    for one in evaluations:
        table.add_row(one.step, source(one))
    return table


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
    """Whether n carries the stated margin; if not, what would, and at which price."""
    if one.needed is None:
        return Text("enough", style="green")
    needed = _n(one.needed.items, one.needed.samples)
    return Text(f"too few, {needed} would do: {_cost(one.needed.cost, is_free, spot)}", style="yellow")


def _cost(cost: Cost, is_free: bool, spot: bool) -> str:
    hours = f"{cost.gpu_h:.1f} h"
    return hours if is_free else f"{hours}, {dollars(cost.usd_spot if spot else cost.usd_on_demand)}"
