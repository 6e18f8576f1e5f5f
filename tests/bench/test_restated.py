"""Speeds said anew of the visits that stand in a dataset, whatever the design that measured them."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.h200.restated import Restated, restated
from tests.warehouse.visited import VisitedRun, only
from warehouse.parts import Row
from warehouse.snapshot import publish, read_current
from warehouse.store import open_store

CELLS = (("mtp", 2, 160.0), ("ngram", 4, 120.0), ("dflash", 7, 140.0))


@pytest.fixture
def tables(tmp_path: Path) -> dict[str, list[Row]]:
    """Of a run that was measured forwards and back, its AR a cell of its own."""
    store = open_store(str(tmp_path / "store"))
    run = VisitedRun(store, "mirrored")
    run.visit("ar", None, 100.0)
    for technique, k, rate in CELLS:
        run.visit(technique, k, rate)
    for technique, k, rate in reversed(CELLS):
        run.visit(technique, k, rate * 1.002, "@2")
    run.visit("ar", None, 100.4, "@2")
    publish(store)
    return {name: read_current(store, name).to_dicts() for name in ("results_consolidated", "pairs", "visits")}


def again(tables: dict[str, list[Row]], visits: list[Row]) -> Restated:
    return restated(tables["results_consolidated"], tables["pairs"], visits)


def test_a_speedup_over_an_ar_that_is_a_cell_of_its_own_is_kept(tables: dict[str, list[Row]]) -> None:
    built, made = only(tables["results_consolidated"], technique="mtp"), again(tables, tables["visits"])
    row = only(made.results, technique="mtp")
    assert row["conclusion"] == built["conclusion"] == "faster"
    for name in ("speedup", "speedup_lo", "speedup_hi"):
        assert row[name] == pytest.approx(built[name], rel=1e-4), name
    was, pair = (only(pairs, kind="speed", technique="mtp") for pairs in (tables["pairs"], made.pairs))
    assert (pair["baseline_cell_key"], pair["baseline_visits"]) == (was["baseline_cell_key"], 2)
    assert sum(pair["kind"] == "speed" for pair in made.pairs) == len(CELLS)


@pytest.mark.parametrize(
    ("verdict", "said"),
    [
        (None, "no_baseline: AR on this machine stands in the dataset no longer, so there is no speedup"),
        ("suspect", "no_baseline: AR on this machine is not ok, so there is no speedup"),
    ],
)
def test_a_speedup_that_goes_says_why(tables: dict[str, list[Row]], verdict: str | None, said: str) -> None:
    changed = [row | {"verdict": verdict or "ok"} if row["technique"] == "ar" else row for row in tables["visits"]]
    visits = [row for row in changed if verdict or row["technique"] != "ar"]
    made = again(tables, visits)
    row = only(made.results, technique="mtp")
    assert (row["speedup"], row["verdict"], row["details"]) == (None, "ok", [said])
    assert not [pair for pair in made.pairs if pair["kind"] == "speed"]
    merged_again = restated(made.results, made.pairs, visits)
    assert only(merged_again.results, technique="mtp")["details"] == [said], "nor does a later lease forget it"
