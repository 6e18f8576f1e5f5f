"""Which K are out after one visit: those that no further start can save, and no other."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from configs.schema import PlannedCell
from tests.warehouse.synthetic import demo_plan
from warehouse.dataset.curves import curves_of, out_after_first_visit
from warehouse.ledger.tables import Row


def cells(max_num_seqs: int | None = None) -> dict[int, PlannedCell]:
    """A cell for each K, and AR's, all under one serving argument."""
    demo = [each for each in demo_plan().cells if each.cell.precision.name == "bf16"]
    ar, mtp = (next(each for each in demo if each.cell.technique.name == name) for name in ("ar", "mtp"))

    def cell(of: PlannedCell, k: int | None) -> PlannedCell:
        serving = of.cell.serving.model_copy(update={"max_num_seqs": max_num_seqs})
        return of.model_copy(update={"cell": of.cell.model_copy(update={"k": k, "serving": serving})})

    return {0: cell(ar, None), **{k: cell(mtp, k) for k in (1, 2, 4, 8)}}


CELLS = cells()
NAMES = {planned.cell.cell_key: f"cell-{k}" for k, planned in CELLS.items()}


def point(
    k: int, tok_s: float, condition: str = "short c=1", noise: float = 0.01, planned: PlannedCell | None = None,
    **columns: Any,
) -> Row:  # fmt: skip
    interval = {"tok_s": tok_s, "tok_s_lo": tok_s * (1 - noise), "tok_s_hi": tok_s * (1 + noise)}
    of = {"run_id": "r1", "cell_key": (planned or CELLS[k]).cell.cell_key, "k": k or None, "machine": "card A"}
    shape = {"step": "throughput", "condition": condition, "mode": "fixed"}
    return of | shape | {"verdict": "ok"} | interval | columns


def said(*rows: Row, planned: Sequence[PlannedCell] = ()) -> dict[str, str]:
    """What is out by cell, of those that have a row."""
    measured = {row["cell_key"] for row in rows}
    curves = curves_of("r1", planned or [each for each in CELLS.values() if each.cell.cell_key in measured])
    return {NAMES.get(key, key): why for key, why in out_after_first_visit(curves, rows).items()}


def out(*points: Row, parity: Sequence[Row] = ()) -> list[str]:
    return sorted(said(*points, *parity))


def test_what_is_far_behind_in_every_condition_is_out_and_the_sentence_says_by_how_much() -> None:
    found = said(point(0, 100), point(2, 150), point(8, 110), point(8, 90, "8k"), point(2, 150, "8k"))
    assert found == {"cell-8": "K=8 is out: 8k 0.60 x K=2; short c=1 0.73 x K=2"}


def test_what_could_still_win_given_how_starts_may_differ_is_kept() -> None:
    assert out(point(0, 100), point(2, 150), point(4, 132)) == [], "12 % behind: two starts may differ by that"
    assert out(point(0, 100), point(2, 150), point(4, 120)) == ["cell-4"]
    assert out(point(0, 100), point(2, 150, noise=0.3), point(4, 120, noise=0.3)) == []


def test_one_condition_in_which_it_may_win_keeps_it() -> None:
    assert out(point(0, 100), point(2, 150), point(8, 90), point(2, 400, "c=1"), point(8, 420, "c=1")) == []


@pytest.mark.parametrize("doubt", [{"verdict": "suspect"}, {"tok_s_lo": None, "tok_s_hi": None}])
def test_a_row_in_doubt_is_measured_again_and_drops_nobody(doubt: Row) -> None:
    assert out(point(0, 100), point(2, 150), point(8, 60, **doubt)) == []
    assert out(point(1, 140), point(2, 150), point(4, 500, **doubt)) == []


def parity(k: int, equal: int, margin: float | None, first: int) -> Row:
    return {
        "cell_key": CELLS[k].cell.cell_key, "step": "parity", "verdict": "ok", "parity_n": 12, "parity_equal": equal,
        "divergence_margin": margin, "parity_near_ties": 0, "first_divergence": first,
    }  # fmt: skip


def test_what_writes_another_text_than_ar_drops_nobody_however_fast_it_is() -> None:
    points = [point(0, 100), point(1, 145), point(2, 150), point(8, 400)]
    assert out(*points) == ["cell-1", "cell-2"]
    assert out(*points, parity=[parity(8, 0, None, 0)]) == [], "its control is measured on the way back only"
    assert out(*points, parity=[parity(8, 3, 2.5, 90)]) == []
    assert out(*points, parity=[parity(8, 12, None, 0)]) == ["cell-1", "cell-2"]


def test_ar_is_never_dropped_and_may_be_what_nobody_reaches() -> None:
    assert out(point(0, 200), point(1, 150), point(2, 130)) == ["cell-1", "cell-2"]
    assert out(point(0, 50), point(1, 150), point(2, 151)) == []


def test_k_of_another_server_drops_nobody() -> None:
    few, many = cells(max_num_seqs=4), cells(max_num_seqs=64)
    run = {"few-1": (few[1], 100), "few-2": (few[2], 110), "many-4": (many[4], 400), "many-8": (many[8], 300)}
    points = [point(planned.cell.k or 0, tok_s, planned=planned) for planned, tok_s in run.values()]
    found = said(*points, planned=[planned for planned, _ in run.values()])
    assert found == {many[8].cell.cell_key: "K=8 is out: short c=1 0.75 x K=4"}


def test_ar_that_is_served_otherwise_drops_nobody() -> None:
    ar, few = CELLS[0], cells(max_num_seqs=4)
    points = [point(0, 900), point(1, 100, planned=few[1]), point(2, 105, planned=few[2])]
    assert said(*points, planned=[ar, few[1], few[2]]) == {}


def test_a_faster_card_drops_nobody_on_another_one() -> None:
    slow = [point(1, 100), point(2, 110)]
    fast = [point(0, 150, machine="card B"), point(4, 190, machine="card B")]
    assert out(*slow, *fast) == []
    assert out(*slow, point(0, 300, machine="card B"), point(4, 190, machine="card B")) == ["cell-4"]
    assert out(*(row | {"machine": None} for row in (point(0, 300), point(1, 100), point(2, 110)))) == []
