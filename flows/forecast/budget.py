"""Budgets: what would exceed one does not start; what does is stopped, with everything measured so far committed.

A budget is compared with what was spent (placements; those still up count until now) plus, before a start, what the
forecast says is left. Sources of both: `warehouse/dataset/bill.py` and `flows/forecast/forecast.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime
from typing import Literal, NamedTuple

from configs.errors import SpecsweepError
from configs.schema import Budget
from flows.forecast.forecast import CellForecast, Forecast
from warehouse.dataset.bill import Spending, Spent
from warehouse.ledger.looks import SharedLook
from warehouse.ledger.store import Store

Field = Literal["cell_usd", "run_usd", "month_usd"]  # a field of `cloud.budget`
SOME_SWEEP_FILE = "the sweep's file"  # where to raise a budget if nobody says which file sets it
MOST_DIGITS = 6  # most digits after the point that tell two amounts apart; a second of an H100 costs 0.001 USD


class BudgetExceeded(SpecsweepError):
    """A run would cost more than it may, or nobody can say what it would cost; the text has the amounts."""


class Fit(NamedTuple):
    """One budget, and what counts against it; `left_usd` None: no price is known. `is_done`: nothing is left."""

    field: Field
    who: str
    budget_usd: float
    spent_usd: float
    left_usd: float | None = None
    is_done: bool = False

    @property
    def total_usd(self) -> float | None:
        """What it will have cost in the end; None if a price is not known."""
        return None if self.left_usd is None else self.spent_usd + self.left_usd

    @property
    def fits(self) -> bool:
        """Whether it may start: always if nothing is left to measure."""
        return self.is_done or (self.total_usd is not None and self.total_usd <= self.budget_usd)


def over(spent_usd: float, budget_usd: float, who: str, field: Field, sweep_file: str = SOME_SWEEP_FILE) -> str | None:
    """Why something that runs must stop now, with the amounts and what to do; None if there is money left."""
    if spent_usd < budget_usd:
        return None
    spent, limit = _amounts(spent_usd, budget_usd)
    return (
        f"{who} spent {spent} of {limit} USD: stopped; everything measured so far is committed; "
        f"raise cloud.budget.{field} in {sweep_file} and start the same run again"
    )


class Purse:
    """The money of one run; safe for many threads, and cheap enough to ask at every look at a cluster."""

    def __init__(
        self,
        store: Store,
        run_id: str,
        budget: Budget,
        now_s: Callable[[], float],
        sweep_file: str = SOME_SWEEP_FILE,
        look: SharedLook | None = None,
    ) -> None:
        """`budget` is the sweep's as it is now, not as the run's plan recorded it; a flow lists the run in `look`."""
        self._spending = Spending(store, now_s, look)
        self._run_id, self._budget, self._now_s, self._sweep_file = run_id, budget, now_s, sweep_file

    def fits(self, forecast: Forecast) -> list[Fit]:
        """Every budget that is set, against what is spent and what is forecast; of the cells, only the dearest."""
        if not self._budget.is_set:
            return []

        def fit(budget: Fit, left: Forecast | CellForecast) -> Fit:
            usd = left.usd_spot if forecast.spot else left.usd_on_demand
            return budget._replace(left_usd=usd, is_done=left.gpu_h == 0)

        run, found = self._spending.of_run(self._run_id, fresh=True), list[Fit]()
        if self._budget.cell_usd is not None and forecast.cells:
            spent = [(cell, run.by_cell.get(cell.cell_key, 0.0)) for cell in forecast.cells]
            limit = self._budget.cell_usd
            each = [fit(Fit("cell_usd", f"cell {cell.label}", limit, usd), cell) for cell, usd in spent]
            found.append(max(each, key=lambda one: (not one.fits, one.spent_usd + (one.left_usd or 0.0))))
        return found + [fit(budget, forecast) for budget in self._of_all_cells(run, fresh=True)]

    def check_start(self, forecast: Forecast) -> None:
        """Raise BudgetExceeded if what is left of a run does not fit its budgets, or a price is not known."""
        found = self.fits(forecast)
        bad = [fit for fit in found if not fit.fits]
        if unknown := next((fit for fit in bad if fit.left_usd is None), None):
            price = "price_spot_usd_h" if forecast.spot else "price_on_demand_usd_h"
            raise BudgetExceeded(
                f"what {unknown.who} would cost is not known, so its budget of {unknown.budget_usd:.2f} USD can't be "
                f"promised: gpu {forecast.gpu!r} has no {price}; add it to gpus/{forecast.gpu}.yaml, "
                f"or leave cloud.budget out of {self._sweep_file}"
            )
        if bad:
            why = [f"priced on demand: {forecast.why_on_demand}"] if forecast.why_on_demand else []
            raise BudgetExceeded("; ".join([*(_too_much(fit, self._sweep_file) for fit in bad), *why]))
        if any(not fit.is_done for fit in found) and (said := self._unpriced(self._spending.of_run(self._run_id))):
            raise BudgetExceeded(said)

    def over_run(self) -> str | None:
        """Why the whole run must stop now: its own budget, or the month's; None to go on."""
        has_limit = self._budget.run_usd is not None or self._budget.month_usd is not None
        return self._over(self._of_all_cells) if has_limit else None

    def over_cell(self, cell_key: str) -> str | None:
        """Why one cell must stop now; None to go on."""
        limit_usd = self._budget.cell_usd
        if limit_usd is None:
            return None
        return self._over(
            lambda run, _: [Fit("cell_usd", f"cell {cell_key}", limit_usd, run.by_cell.get(cell_key, 0.0))]
        )

    def _over(self, limits: Callable[[Spent, bool], Iterable[Fit]]) -> str | None:
        """Why some limits are over: looked at cheaply first, and at the store itself before anything is stopped."""
        why = None
        for fresh in (False, True):
            run = self._spending.of_run(self._run_id, fresh=fresh)
            found = limits(run, fresh)
            said = (over(each.spent_usd, each.budget_usd, each.who, each.field, self._sweep_file) for each in found)
            why = self._unpriced(run) or next(filter(None, said), None)
            if why is None:
                break
        return why

    def _of_all_cells(self, run: Spent, fresh: bool) -> Iterator[Fit]:
        if self._budget.run_usd is not None:
            yield Fit("run_usd", f"run {self._run_id}", self._budget.run_usd, run.usd)
        if self._budget.month_usd is not None:
            now_s = self._now_s()
            month = f"{datetime.fromtimestamp(now_s, UTC):%B %Y} (all runs of this store)"
            yield Fit("month_usd", month, self._budget.month_usd, self._spending.of_month(fresh=fresh).usd)

    def _unpriced(self, run: Spent) -> str | None:
        """Why no budget can be kept: something was rented without a price; None if nothing was."""
        if not run.unpriced:
            return None
        return (
            f"{run.unpriced[0]} has no price, so no budget can be kept: everything measured so far is committed; "
            f"rent only what has a price, or leave cloud.budget out of {self._sweep_file}, and start the same run again"
        )


def _too_much(fit: Fit, sweep_file: str) -> str:
    total_usd = fit.total_usd or 0.0
    total, limit, spent, left = _amounts(total_usd, fit.budget_usd, fit.spent_usd, total_usd - fit.spent_usd)
    advice = "leave steps out" if fit.field == "cell_usd" else "leave cells out"
    return (
        f"{fit.who} would cost {total} USD (spent {spent} + forecast {left}), its budget is {limit}: "
        f"raise cloud.budget.{fit.field} in {sweep_file}, or {advice}"
    )


def _amounts(total_usd: float, limit_usd: float, *others_usd: float) -> tuple[str, ...]:
    """Amounts in cents, or as fine as it takes to see that the first two differ."""
    differ = abs(total_usd - limit_usd) > 0.5 * 10**-MOST_DIGITS
    digits = 2
    while differ and digits < MOST_DIGITS and f"{total_usd:.{digits}f}" == f"{limit_usd:.{digits}f}":
        digits += 1
    return tuple(f"{usd:.{digits}f}" for usd in (total_usd, limit_usd, *others_usd))
