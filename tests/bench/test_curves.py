"""Curves over K of several leases: every K with its own bracket, and refused where one run would refuse."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from bench.h200.curves import over_leases
from bench.h200.restated import restated
from configs.checkout import ROOT
from configs.schema import PlannedCell
from tests.warehouse.speculation.test_which_k import LONG, POSITIONS, counts
from tests.warehouse.synthetic import demo_plan
from tests.warehouse.visited import VisitedRun, only
from warehouse.parts import Row
from warehouse.report.newest import make_view
from warehouse.snapshot import publish, read_current
from warehouse.speculation.rows import Curves
from warehouse.statistics.speculation.theory import expected_tokens
from warehouse.store import Store, open_store
from warehouse.tables import PRODUCT_TABLES

SNAPSHOT = ROOT / "bench" / "h200" / "snapshot"
DFLASH = "dflash"

CELLS: Sequence[PlannedCell] = [
    each.model_copy(update={"steps": tuple(one for one in each.steps if one.step == "throughput")})
    for each in demo_plan().cells
    if each.cell.precision.name == "bf16" and each.cell.technique.name in ("ar", "mtp", DFLASH)
]


class Leases:
    """Leases of one plan, each a run on one machine with rates of its own: steps of 10 ms x (1 + K / 20)."""

    def __init__(self, store: Store) -> None:
        self.store, self.runs = store, 0

    def lease(self, *ks: int, ar: float = 100.0, **columns: Any) -> VisitedRun:
        """A bracket of each K, and DFlash's, beside whose AR theirs is a placebo."""
        self.runs += 1
        run = VisitedRun(self.store, run_id=f"lease-{self.runs}", cells=CELLS)
        run.ledger.clock.now += 86_400.0 * self.runs
        for k in ks:
            rate = ar * expected_tokens(POSITIONS[k]) / (1 + 0.05 * k)
            run.bracket("mtp", k, ar * 1.001, rate, ar / 1.001, condition=LONG, **counts(k), **columns)
        return run

    def beside(self, run: VisitedRun, ar: float = 100.0, **columns: Any) -> VisitedRun:
        [k] = [each.cell.k for each in CELLS if each.cell.technique.name == DFLASH]
        run.bracket(DFLASH, k, ar * 1.001, ar * 1.2, ar / 1.001, condition=LONG, **columns)
        return run

    def merged(self) -> Curves:
        publish(self.store)
        rows = {name: read_current(self.store, name).to_dicts() for name in ("results_consolidated", "pairs", "visits")}
        results, _, known = restated(*rows.values())
        run = VisitedRun(self.store, run_id="plan-of-a-later-version", cells=CELLS)
        return over_leases(run.cells, results, [], known)


@pytest.fixture
def leases(tmp_path: Path) -> Leases:
    return Leases(open_store(str(tmp_path / "store")))


def test_k_of_several_leases_are_one_curve_and_each_keeps_what_it_gained_over_its_own_control(leases: Leases) -> None:
    leases.lease(1, 2)
    leases.beside(leases.lease(4, ar=80.0), ar=80.0)  # the same card, a fifth slower: K=4's rate is below K=2's
    made = leases.merged()
    assert {row["k"]: row["measured_in"] for row in made.k_curves} == {1: "lease-1", 2: "lease-1", 4: "lease-2"}
    assert {row["run_id"] for row in made.k_curves} == {"lease-2"}, "one curve is named by its latest run"
    results = read_current(leases.store)
    for point in made.k_curves:
        theirs = only(results.to_dicts(), run_id=point["measured_in"], cell_key=point["cell_key"], mode="fixed")
        assert (point["tok_s"], point["k"]) == (theirs["tok_s"], theirs["k"])
        assert point["speedup"] == pytest.approx(expected_tokens(POSITIONS[point["k"]]) / (1 + 0.05 * point["k"]))
    row = only(made.recommendations)
    assert (row["k"], row["fastest_k"], row["refusal"]) == (4, 4, None), row["wording"]
    assert (row["points"], row["draft_cost"]) == (4, pytest.approx(0.05, rel=0.01))
    assert only(made.k_curves, k=4)["step_ms"] == pytest.approx(12.0 * 100 / 80, rel=0.01), "its own lease's"
    built = [each["refusal"] for each in read_current(leases.store, "recommendations").to_dicts()]
    assert built == ["incomplete: K=4 was not measured", "incomplete: K=1 was not measured; K=2 was not measured"]


def test_a_k_of_the_plan_that_no_lease_measured_is_missing(leases: Leases) -> None:
    leases.beside(leases.lease(1))
    leases.beside(leases.lease(4))
    row = only(leases.merged().recommendations)
    assert (row["k"], row["k_candidates"]) == (None, [0, 1, 2, 4])
    assert row["refusal"] == "incomplete: K=2 was not measured"


def test_a_suspect_k_of_another_lease_decides_nothing(leases: Leases) -> None:
    leases.lease(1, 2)
    leases.beside(leases.lease(4, verdict=("suspect", ["unsteady"], ["repeats differ"])))
    made = leases.merged()
    assert only(made.recommendations)["refusal"] == "incomplete: K=4 is suspect (unsteady)"
    assert only(made.k_curves, k=4)["verdict"] == "suspect" and only(made.recommendations)["points"] == 3


def test_a_lease_that_may_claim_nothing_lets_nothing_be_recommended(leases: Leases) -> None:
    leases.lease(1, 2)
    leases.lease(4)  # nobody else's AR was started twice
    assert only(leases.merged().recommendations)["refusal"].startswith("no_placebo: ")


@pytest.mark.parametrize(
    "other", [{"engine_version": "9.9"}, {"draft_revision": "later"}, {"argv": "vllm serve m --x"}]
)
def test_k_that_another_engine_or_drafter_served_is_on_a_curve_of_its_own(leases: Leases, other: Row) -> None:
    leases.lease(1, 2)
    leases.beside(leases.lease(4, provenance=other), provenance=other)
    made = leases.merged()
    assert {(row["run_id"], row["k"]) for row in made.k_curves} == {("lease-1", 1), ("lease-1", 2), ("lease-2", 4)}
    assert all(row["refusal"].startswith("incomplete: ") for row in made.recommendations)


def test_what_is_made_up_otherwise_is_another_cell(leases: Leases) -> None:
    leases.lease(1, 2, 4)
    publish(leases.store)
    results = read_current(leases.store).with_columns(
        made_up=pl.when(k=4).then(pl.lit("acceptance=replayed:another")).otherwise("made_up")
    )
    rows, _, known = restated(results.to_dicts(), [], read_current(leases.store, "visits").to_dicts())
    assert {row["k"] for row in over_leases(CELLS, rows, [], known).k_curves} == {1, 2}


def snapshot() -> dict[str, pl.DataFrame]:
    return {name: pl.read_parquet(SNAPSHOT / f"{name}.parquet") for name in PRODUCT_TABLES}


def test_the_leases_dataset_has_all_k_of_a_cell_on_one_curve_with_the_figures_of_its_rows() -> None:
    tables = snapshot()
    on = ["cell_key", "step", "condition", "mode"]
    points = tables["k_curves"].drop("run_id").rename({"measured_in": "run_id"})
    rows = points.join(tables["results_consolidated"], on=["run_id", *on], how="inner", suffix="_of_row")
    assert len(rows) == len(points)
    for name in ("k", "tok_s", "speedup", "tokens_per_step", "verdict"):
        assert rows[name].equals(rows[f"{name}_of_row"], null_equal=True, check_names=False), name
    dense = tables["k_curves"].filter(model="gemma-4-31b-shape", technique="mtp", condition="short c=1")
    assert dense["run_id"].n_unique() == 1 and {1, 2, 4} <= set(dense["k"]) and dense["measured_in"].n_unique() > 1
    drawn = tables["k_curves"].filter(model="gemma-4-26b-a4b-shape", condition="short c=1")
    assert {2, 4} <= set(drawn["k"]) and drawn["made_up"].str.contains("routing=random").all()
    assert tables["recommendations"]["refusal"].str.starts_with("not really run: ").all()


def test_the_page_shows_a_curve_of_several_runs_whole_until_a_k_of_it_is_measured_anew() -> None:
    tables = snapshot()
    view = make_view(tables)
    assert (len(view.k_curves), len(view.recommendations)) == (len(tables["k_curves"]), len(tables["recommendations"]))
    one = tables["k_curves"].filter(model="gemma-4-31b-shape", k=4).row(0, named=True)
    results = tables["results_consolidated"]
    again = results.filter(cell_key=one["cell_key"]).with_columns(
        run_id=pl.lit("later"), measured_at=pl.lit("2027-01-01T00:00:00.000+00:00")
    )
    later = make_view(tables | {"results_consolidated": pl.concat([results, again])})
    assert {row["k"] for row in later.k_curves if row["model"] == one["model"]} == set(
        tables["k_curves"].filter(model=one["model"])["k"]
    ) - {4}
    assert one["model"] not in {row["model"] for row in later.recommendations}, "it rested on the older row"
