"""Plan and start budget have the price of what would be rented, not of what was asked for."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner

from configs.checkout import ROOT
from configs.schema import Plan
from flows.forecast.budget import BudgetExceeded
from flows.forecast.forecast import forecast
from flows.plans import make_plan
from flows.renting.site import expected
from flows.settling import require_budget
from flows.terminal.cli import app
from warehouse.ledger.commits import Ledger
from warehouse.ledger.store import open_store

Rented = Callable[..., Plan]

ON_DEMAND = "use_spot: true", "use_spot: false"
ONE_ENTRY = "- infra: gcp", "- {infra: gcp, use_spot: true}"


@pytest.fixture
def rented(tmp_path: Path) -> Rented:
    """The plan of `full`, with other settings of its cloud, on a task that is h100-spot with some text replaced."""

    def plan(*replaced: tuple[str, str], **cloud: object) -> Plan:
        task = (ROOT / "sky" / "h100-spot.yaml").read_text(encoding="utf-8")
        for old, new in replaced:
            assert old in task
            task = task.replace(old, new, 1)
        (tmp_path / "task.yaml").write_text(task, encoding="utf-8")
        sweep = yaml.safe_load((ROOT / "configs" / "sweeps" / "full.yaml").read_text(encoding="utf-8"))
        sweep |= {"name": "mine", "cloud": {"task": "task.yaml", **cloud}}
        (tmp_path / "mine.yaml").write_text(yaml.safe_dump(sweep), encoding="utf-8")
        return make_plan(str(tmp_path / "mine.yaml"))

    return plan


@pytest.mark.parametrize(
    ("replaced", "cloud", "why"),
    [
        ((ON_DEMAND,), {}, "use_spot is false in the sweep's task (cloud.task)"),
        ((), {"on_demand_after": 0}, "lost 0 machines (cloud.on_demand_after: 0)"),
        ((), {"finish_by_h": 3}, "6.2 h of work left, 3.0 h to cloud.finish_by_h"),
        ((), {"finish_by_h": 6.4}, "6.2 h of work left, 6.4 h to cloud.finish_by_h"),  # no time for another machine
    ],
)
def test_what_would_be_rented_on_demand_is_planned_so_and_its_budget_has_to_bear_it(
    rented: Rented, tmp_path: Path, replaced: tuple[tuple[str, str], ...], cloud: dict[str, object], why: str
) -> None:
    plan = rented(*replaced, **cloud, budget={"run_usd": 80})
    left = expected(plan, None)
    assert (left.spot, left.why_on_demand) == (False, why)
    assert not any("No preemption" in sentence for sentence in left.assumptions)
    done = CliRunner().invoke(app, ["plan", str(tmp_path / "mine.yaml"), "--store", str(tmp_path / "store")])
    said = " ".join(done.stdout.split())
    assert f"${left.usd_on_demand:.2f} on demand. On demand: {why}." in said and "too much: will not start" in said
    ledger = Ledger(open_store(str(tmp_path / "store")), "mine")
    with pytest.raises(BudgetExceeded, match=f"forecast {left.usd_on_demand:.2f}") as refused:
        require_budget(ledger, plan)
    assert str(refused.value).endswith(f"; priced on demand: {why}")


@pytest.mark.parametrize(
    ("replaced", "cloud"),
    [((), {}), ((), {"finish_by_h": 8}), ((), {"on_demand_after": 1}), ((ON_DEMAND, ONE_ENTRY), {})],
)
def test_what_begins_on_spot_is_planned_so(
    rented: Rented, replaced: tuple[tuple[str, str], ...], cloud: dict[str, object]
) -> None:
    plan = rented(*replaced, **cloud)
    left = expected(plan, None)
    assert left == forecast(plan, {}) and (left.spot, left.why_on_demand) == (True, None)


def test_a_deadline_counts_from_the_run_s_start_and_asks_nothing_of_what_is_measured(
    rented: Rented, tmp_path: Path
) -> None:
    plan = rented(finish_by_h=12)
    ledger = Ledger(open_store(str(tmp_path / "store")), "mine")
    ledger.write_plan(plan)
    assert expected(plan, ledger).spot
    began_s = ledger.clock.now_s() - 7 * 3600
    os.utime(Path(ledger.store.uri(f"{ledger.root}/plan.json")), (began_s, began_s))
    assert expected(plan, ledger).why_on_demand == "6.2 h of work left, 5.0 h to cloud.finish_by_h"
    assert expected(rented(), ledger).spot
