"""Which K are out after one visit: those that no further start can save, and no other."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from warehouse.parts import Row
from warehouse.speculation.out import out_after_first_visit

CURVE = {
    "run_id": "r1", "model": "m", "precision": "fp8", "technique": "mtp", "draft": "d", "made_up": None,
    "engine": "e", "gpu": "g", "step": "throughput", "mode": "fixed",
}  # fmt: skip


def point(k: int, tok_s: float, condition: str = "short c=1", noise: float = 0.01, **columns: Any) -> Row:
    interval = {"tok_s": tok_s, "tok_s_lo": tok_s * (1 - noise), "tok_s_hi": tok_s * (1 + noise)}
    return CURVE | {"k": k, "cell_key": f"cell-{k}", "condition": condition, "verdict": "ok"} | interval | columns


def out(*points: Row, parity: Sequence[Row] = ()) -> list[str]:
    return sorted(out_after_first_visit(points, parity))


def test_what_is_far_behind_in_every_condition_is_out_and_the_sentence_says_by_how_much() -> None:
    found = out_after_first_visit(
        [point(0, 100), point(2, 150), point(8, 110), point(8, 90, "8k"), point(2, 150, "8k")], []
    )
    assert found == {"cell-8": "K=8 is out: short c=1 0.73 x K=2; 8k 0.60 x K=2"}


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
        "cell_key": f"cell-{k}", "step": "parity", "verdict": "ok", "parity_n": 12, "parity_equal": equal,
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
