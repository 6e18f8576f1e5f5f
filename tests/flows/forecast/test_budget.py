"""Budgets: what is refused before it starts, what is stopped in the middle, and the amounts in both messages.

Plan and start budget have the price of what would be rented, not of what was asked for.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from configs.checkout import ROOT
from configs.expand import expand
from configs.load import load_sweep
from configs.schema import Budget, Plan
from flows.forecast.budget import BudgetExceeded, Fit, Purse, over
from flows.forecast.forecast import Forecast, forecast
from flows.plans import make_plan
from flows.renting.site import expected
from flows.settling import require_budget
from flows.terminal.cli import app
from tests.flows.conftest import Finish
from tests.flows.forecast.test_forecast import on_gpu
from tests.warehouse.rented import NO_PRICE, START_S, ZONE_A, at, rent
from warehouse.ledger.commits import Ledger
from warehouse.ledger.placement import PlacementEnd, Placements
from warehouse.ledger.store import open_store

FULL: Plan = expand(load_sweep("full"))
EXPECTED: Forecast = forecast(FULL, {})
TOTAL_USD = EXPECTED.usd_spot or 0.0
DEAREST = max(EXPECTED.cells, key=lambda cell: cell.usd_spot or 0.0)
FILE = "configs/sweeps/full.yaml"
KEY, OTHER = (planned.cell.cell_key for planned in FULL.cells[:2])
RICH = ZONE_A.model_copy(update={"price_usd_h": 3600.0})  # one dollar a second


class Clock:
    def __init__(self, seconds: float = 10_000) -> None:
        self.s = START_S + seconds

    def now_s(self) -> float:
        return self.s


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    return Ledger(open_store(str(tmp_path / "store")), "full-1a2b")


def purse(ledger: Ledger, clock: Clock | None = None, **limits: float) -> Purse:
    budget = Budget.model_validate(limits)
    return Purse(ledger.store, ledger.run_id, budget, (clock or Clock()).now_s, FILE)


def refused(purse: Purse, expected: Forecast = EXPECTED) -> str:
    with pytest.raises(BudgetExceeded) as caught:
        purse.check_start(expected)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_a_run_that_would_exceed_its_budget_does_not_start(ledger: Ledger) -> None:
    rent(ledger, KEY, 0, 2, 12, offer=RICH, attempt=1)
    rent(ledger, OTHER, 9_990, 9_995, None, offer=RICH)  # up since ten seconds
    limit = round(20 + TOTAL_USD - 1, 2)
    assert refused(purse(ledger, run_usd=limit)) == (
        f"run full-1a2b would cost {22 + TOTAL_USD:.2f} USD (spent 22.00 + forecast {TOTAL_USD:.2f}), its budget is "
        f"{limit:.2f}: raise cloud.budget.run_usd in configs/sweeps/full.yaml, or leave cells out"
    )
    purse(ledger, run_usd=23 + TOTAL_USD).check_start(EXPECTED)


def test_the_dearest_cell_is_held_to_its_own_budget(ledger: Ledger) -> None:
    rent(ledger, DEAREST.cell_key, 0, None, 1, offer=RICH, attempt=1)
    usd = DEAREST.usd_spot or 0.0
    said = refused(purse(ledger, cell_usd=0.9 + usd))
    assert f"cell {DEAREST.label} would cost {1 + usd:.2f} USD (spent 1.00 + forecast {usd:.2f})" in said
    assert "cloud.budget.cell_usd" in said and "leave steps out" in said
    purse(ledger, cell_usd=1.1 + usd).check_start(EXPECTED)


def test_a_month_is_shared_by_all_runs_of_the_store(ledger: Ledger) -> None:
    rent(Ledger(ledger.store, "nightly-2026-11-03"), KEY, 0, 2, 40, offer=RICH, attempt=1)
    said = refused(purse(ledger, month_usd=TOTAL_USD + 1))
    assert f"November 2026 (all runs of this store) would cost {40 + TOTAL_USD:.2f} USD (spent 40.00 + " in said
    next_month = datetime(2026, 12, 2, tzinfo=UTC).timestamp() - START_S
    purse(ledger, Clock(next_month), month_usd=TOTAL_USD + 1).check_start(EXPECTED)
    purse(ledger, run_usd=TOTAL_USD + 1).check_start(EXPECTED)


def test_every_budget_that_does_not_fit_is_named(ledger: Ledger) -> None:
    said = refused(purse(ledger, cell_usd=0.01, run_usd=0.01, month_usd=0.01))
    assert re.findall(r"cloud\.budget\.(\w+)", said) == ["cell_usd", "run_usd", "month_usd"]


def test_a_measured_run_is_never_refused(ledger: Ledger) -> None:
    rent(ledger, KEY, 0, 2, 60, offer=RICH, attempt=1)
    done = forecast(FULL, {p.cell.cell_key: [each.name for each in p.measurements] for p in FULL.cells})
    purse(ledger, cell_usd=0.01, run_usd=50.0, month_usd=50.0).check_start(done)


def test_what_has_no_price_can_not_be_promised(ledger: Ledger) -> None:
    unpriced = forecast(on_gpu(FULL, "h200"), {})
    said = refused(purse(ledger, run_usd=100.0), unpriced)
    assert "gpu 'h200' has no price_spot_usd_h" in said and "gpus/h200.yaml" in said and "100.00 USD" in said
    purse(ledger).check_start(unpriced)


def test_amounts_are_as_fine_as_it_takes_to_see_the_excess() -> None:
    said = over(0.010004, 0.01, "run r", "run_usd") or ""
    assert said.startswith("run r spent 0.010004 of 0.010000 USD: stopped")
    assert over(50.03, 50.0, "run r", "run_usd") == (
        "run r spent 50.03 of 50.00 USD: stopped; everything measured so far is committed; "
        "raise cloud.budget.run_usd in the sweep's file and start the same run again"
    )
    assert over(49.99, 50.0, "run r", "run_usd") is None


def test_a_run_is_stopped_when_its_money_is_spent(ledger: Ledger) -> None:
    clock = Clock(0)
    money = purse(ledger, clock, run_usd=50.0)
    assert money.over_run() is None
    rent(ledger, KEY, 0, 2, 30, offer=RICH, attempt=1)
    rent(ledger, OTHER, 40, 45, None, offer=RICH)
    clock.s = START_S + 59.97
    assert money.over_run() is None
    clock.s = START_S + 60.03
    said = money.over_run() or ""
    assert "run full-1a2b spent 50.03 of 50.00 USD" in said
    assert "committed" in said and "cloud.budget.run_usd in configs/sweeps/full.yaml" in said


def test_one_cell_is_stopped_and_the_others_go_on(ledger: Ledger) -> None:
    rent(ledger, KEY, 0, 2, 30, offer=RICH, attempt=1)
    money = purse(ledger, cell_usd=30.0)
    assert f"cell {KEY} spent 30.00 of 30.00 USD" in (money.over_cell(KEY) or "")
    assert (money.over_cell(OTHER), money.over_run()) == (None, None)


def test_the_month_stops_a_run_that_is_in_its_own_budget(ledger: Ledger) -> None:
    rent(Ledger(ledger.store, "another"), KEY, 0, 2, 30, offer=RICH, attempt=1)
    money = purse(ledger, run_usd=10.0, month_usd=30.0)
    assert "November 2026 (all runs of this store) spent 30.00 of 30.00 USD" in (money.over_run() or "")


def test_a_machine_that_went_down_meanwhile_stops_nobody(ledger: Ledger) -> None:
    clock = Clock(100)
    rent(ledger, KEY, 0, 2, None, offer=RICH)
    money = purse(ledger, clock, run_usd=110.0)
    assert money.over_run() is None
    Placements(ledger, KEY).end(1, PlacementEnd(at=at(101), outcome="done"))
    clock.s += 20  # by the clock alone it would have cost 120 USD
    assert money.over_run() is None


def test_without_a_price_there_is_no_budget_to_keep(ledger: Ledger) -> None:
    rent(ledger, KEY, 0, 2, None, offer=NO_PRICE)
    money = purse(ledger, run_usd=100.0, cell_usd=100.0)
    for said in (money.over_run(), money.over_cell(OTHER), refused(money)):
        assert said is not None and "on slurm/- spot has no price" in said
    assert purse(ledger).over_run() is None


def test_many_threads_ask_one_purse(ledger: Ledger) -> None:
    for planned in FULL.cells:
        rent(ledger, planned.cell.cell_key, 0, 2, 10, offer=RICH, attempt=1)
    money = purse(ledger, cell_usd=10.0)
    with ThreadPoolExecutor(8) as pool:
        said = list(pool.map(money.over_cell, [planned.cell.cell_key for planned in FULL.cells] * 4))
    assert all(text is not None and "10.00 of 10.00" in text for text in said)


def test_no_budget_reads_nothing() -> None:
    deaf: Any = object()  # whoever asks it anything gets an AttributeError
    money = Purse(deaf, "r", Budget.model_validate({}), Clock().now_s)
    assert (money.over_run(), money.over_cell(KEY)) == (None, None)
    money.check_start(EXPECTED)


@pytest.mark.parametrize(
    ("left", "done", "fits"), [(10.0, False, True), (10.01, False, False), (None, False, False), (None, True, True)]
)
def test_what_fits(left: float | None, done: bool, fits: bool) -> None:
    assert Fit("run_usd", "run r", 30.0, 20.0, left, done).fits is fits


def own_sweep(folder: Path, **cloud: object) -> str:
    """`full` with other settings of its cloud."""
    sweep = yaml.safe_load((ROOT / FILE).read_text(encoding="utf-8")) | {"name": "mine", "cloud": cloud}
    (folder / "mine.yaml").write_text(yaml.safe_dump(sweep), encoding="utf-8")
    return str(folder / "mine.yaml")


def test_plan_shows_the_budgets_and_whether_they_fit(tmp_path: Path, finish_sweep: Finish) -> None:
    budget = {"cell_usd": 0.1, "run_usd": 200}
    said = finish_sweep("plan", own_sweep(tmp_path, task="h100-spot", budget=budget))
    cell, run = (line for line in said.splitlines() if line.split()[:1] in (["cell_usd"], ["run_usd"]))
    assert DEAREST.label in cell and f"${DEAREST.usd_spot:.2f}" in cell and "will not start" in cell
    assert f"${TOTAL_USD:.2f}" in run and run.split()[-1] == "fits"


def test_status_says_what_was_spent_and_what_is_up(ledger: Ledger, finish_sweep: Finish) -> None:
    ledger.write_plan(FULL)
    rent(ledger, KEY, 0, 2, 12, offer=RICH, attempt=1)
    said = finish_sweep("status")
    assert "run full-1a2b: $12.00 spent" in said and "clusters up" not in said
    assert '"spent_usd": 12.0' in finish_sweep("status", "--json")
    rent(ledger, OTHER, 20, 22, None, offer=ZONE_A)
    assert "clusters up: 1" in finish_sweep("status")


Rented = Callable[..., Plan]
Replaced = tuple[str, str]

ON_DEMAND = "use_spot: true", "use_spot: false"
ONE_ENTRY = "- infra: gcp", "- {infra: gcp, use_spot: true}"


@pytest.fixture
def rented(tmp_path: Path) -> Rented:
    """The plan of `full`, with other settings of its cloud, on a task that is h100-spot with some text replaced."""

    def plan(*replaced: Replaced, **cloud: object) -> Plan:
        task = (ROOT / "sky" / "h100-spot.yaml").read_text(encoding="utf-8")
        for old, new in replaced:
            assert old in task
            task = task.replace(old, new, 1)
        (tmp_path / "task.yaml").write_text(task, encoding="utf-8")
        return make_plan(own_sweep(tmp_path, task="task.yaml", **cloud))

    return plan


@pytest.mark.slow(1)
@pytest.mark.parametrize(
    ("replaced", "cloud", "why"),
    [
        ((ON_DEMAND,), {}, "use_spot is false in the sweep's task (cloud.task)"),
        ((), {"on_demand_after": 0}, "lost 0 machines (cloud.on_demand_after: 0)"),
        ((), {"finish_by_h": 3}, "6.6 h of work left, 3.0 h to cloud.finish_by_h"),
        ((), {"finish_by_h": 6.8}, "6.6 h of work left, 6.8 h to cloud.finish_by_h"),  # no time for another machine
    ],
)
def test_what_would_be_rented_on_demand_is_planned_so_and_its_budget_has_to_bear_it(
    rented: Rented, tmp_path: Path, ledger: Ledger, replaced: tuple[Replaced, ...], cloud: dict[str, Any], why: str
) -> None:
    plan = rented(*replaced, **cloud, budget={"run_usd": 80})
    left = expected(plan, None)
    assert (left.spot, left.why_on_demand) == (False, why)
    assert not any("No preemption" in sentence for sentence in left.assumptions)
    done = CliRunner().invoke(app, ["plan", str(tmp_path / "mine.yaml"), "--store", str(tmp_path / "store")])
    said = " ".join(done.stdout.split())
    assert f"${left.usd_on_demand:.2f} on demand. On demand: {why}." in said and "too much: will not start" in said
    with pytest.raises(BudgetExceeded, match=f"forecast {left.usd_on_demand:.2f}") as refused:
        require_budget(ledger, plan)
    assert str(refused.value).endswith(f"; priced on demand: {why}")


@pytest.mark.parametrize(
    ("replaced", "cloud"),
    [((), {}), ((), {"finish_by_h": 8}), ((), {"on_demand_after": 1}), ((ON_DEMAND, ONE_ENTRY), {})],
)
def test_what_begins_on_spot_is_planned_so(
    rented: Rented, replaced: tuple[Replaced, ...], cloud: dict[str, Any]
) -> None:
    plan = rented(*replaced, **cloud)
    left = expected(plan, None)
    assert left == forecast(plan, {}) and (left.spot, left.why_on_demand) == (True, None)


def test_a_deadline_counts_from_the_run_s_start_and_asks_nothing_of_what_is_measured(
    rented: Rented, ledger: Ledger
) -> None:
    plan = rented(finish_by_h=12)
    ledger.write_plan(plan)
    assert expected(plan, ledger).spot
    began_s = ledger.clock.now_s() - 7 * 3600
    os.utime(Path(ledger.store.uri(f"{ledger.root}/plan.json")), (began_s, began_s))
    assert expected(plan, ledger).why_on_demand == "6.6 h of work left, 5.0 h to cloud.finish_by_h"
    assert expected(rented(), ledger).spot
