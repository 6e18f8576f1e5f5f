"""Theory of speculative decoding, the smallest K within noise, and which K are out after one start."""

from collections.abc import Callable, Sequence
from math import exp, log
from typing import Any

import pytest

from configs.schema import PlannedCell
from tests.warehouse.synthetic import celled, demo_plan
from warehouse.dataset.curves import curves_of, out_after_first_visit
from warehouse.dataset.statistics.speculation import (
    Decoding,
    Ratio,
    acceptance_rate,
    apart,
    expected_tokens,
    fitted_cost,
    geometric_tokens,
    smallest_within_noise,
    step_ms,
    tok_s_of,
)
from warehouse.dataset.statistics.starts import Estimate
from warehouse.ledger.tables import Row


def cells(max_num_seqs: int | None = None) -> dict[int, PlannedCell]:
    """A cell for each K, and AR's, all under one serving argument."""
    demo = [each for each in demo_plan().cells if each.cell.precision.name == "bf16"]
    ar, mtp = (next(each for each in demo if each.cell.technique.name == name) for name in ("ar", "mtp"))
    serving = ar.cell.serving.model_copy(update={"max_num_seqs": max_num_seqs})
    return {0: celled(ar, serving=serving), **{k: celled(mtp, k=k, serving=serving) for k in (1, 2, 4, 8)}}


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


def out(*rows: Row) -> list[str]:
    return sorted(said(*rows))


def test_what_is_far_behind_in_every_condition_is_out_and_what_could_still_win_in_one_is_kept() -> None:
    found = said(point(0, 100), point(2, 150), point(8, 110), point(8, 90, "8k"), point(2, 150, "8k"))
    assert found == {"cell-8": "K=8 is out: 8k 0.60 x K=2; short c=1 0.73 x K=2"}
    assert out(point(0, 100), point(2, 150), point(4, 132)) == [], "12 % behind: two starts may differ by that"
    assert out(point(0, 100), point(2, 150), point(4, 120)) == ["cell-4"]
    assert out(point(0, 100), point(2, 150, noise=0.3), point(4, 120, noise=0.3)) == []
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
    assert out(*points, parity(8, 0, None, 0)) == [], "its control is measured on the way back only"
    assert out(*points, parity(8, 3, 2.5, 90)) == []
    assert out(*points, parity(8, 12, None, 0)) == ["cell-1", "cell-2"]


def test_ar_and_k_on_another_card_are_not_dropped() -> None:
    assert out(point(0, 200), point(1, 150), point(2, 130)) == ["cell-1", "cell-2"]
    assert out(point(0, 50), point(1, 150), point(2, 151)) == []
    slow = [point(1, 100), point(2, 110)]
    fast = [point(0, 150, machine="card B"), point(4, 190, machine="card B")]
    assert out(*slow, *fast) == []
    assert out(*slow, point(0, 300, machine="card B"), point(4, 190, machine="card B")) == ["cell-4"]
    assert out(*(row | {"machine": None} for row in (point(0, 300), point(1, 100), point(2, 110)))) == []


def test_k_or_ar_of_another_server_drops_nobody() -> None:
    few, many = cells(max_num_seqs=4), cells(max_num_seqs=64)
    run = {"few-1": (few[1], 100), "few-2": (few[2], 110), "many-4": (many[4], 400), "many-8": (many[8], 300)}
    points = [point(planned.cell.k or 0, tok_s, planned=planned) for planned, tok_s in run.values()]
    found = said(*points, planned=[planned for planned, _ in run.values()])
    assert found == {many[8].cell.cell_key: "K=8 is out: short c=1 0.75 x K=4"}
    ar, few = CELLS[0], cells(max_num_seqs=4)
    points = [point(0, 900), point(1, 100, planned=few[1]), point(2, 105, planned=few[2])]
    assert said(*points, planned=[ar, few[1], few[2]]) == {}


GB10 = {
    1: ((0.782,), 1.41),
    2: ((0.762, 0.578), 1.54),
    4: ((0.722, 0.536, 0.412, 0.309), 1.75),
    8: ((0.734, 0.523, 0.371, 0.258, 0.193, 0.152, 0.110, 0.089), 1.59),
}
"""Acceptance by position and speedup (Python) of docs/sources.md: mtp-gb10, tables A.1 and A.2."""


def test_tokens_per_step_are_those_of_the_published_k_sweep_and_of_leviathan() -> None:
    found = {k: expected_tokens(shares) for k, (shares, _) in GB10.items()}
    assert found == pytest.approx({1: 1.78, 2: 2.34, 4: 2.98, 8: 3.43}, abs=0.011)
    assert geometric_tokens(0.8, 5) == pytest.approx(3.689, abs=1e-3)
    assert geometric_tokens(0.0, 4) == 1 and geometric_tokens(1.0, 4) == 5


@pytest.mark.parametrize("k", [1, 2, 4, 8])
def test_one_rate_is_found_again_in_the_positions_that_it_makes(k: int) -> None:
    shares = [0.7**place for place in range(1, k + 1)]
    assert acceptance_rate(shares) == pytest.approx(0.7)
    assert geometric_tokens(0.7, k) == pytest.approx(expected_tokens(shares))
    assert acceptance_rate([]) is None and acceptance_rate([0.0] * k) == 0 and acceptance_rate([1.0] * k) == 1


def test_the_cost_of_a_draft_is_found_in_the_steps_and_is_an_eighth_of_a_published_one() -> None:
    cost = fitted_cost([(0, 1.0), (1, 1.1), (2, 1.2), (4, 1.4), (8, 1.8)])
    assert cost is not None
    assert (cost.target, cost.draft, cost.points) == (pytest.approx(1.0), pytest.approx(0.1), 5)
    assert cost.ratio_interval == pytest.approx((0.1, 0.1)) and cost.at(4) == pytest.approx(1.4)
    assert fitted_cost([(0, 1.0), (4, 1.3)]) is None, "two points fit any line"
    cost = fitted_cost([(0, 1.0), *((k, expected_tokens(shares) / gain) for k, (shares, gain) in GB10.items())])
    assert cost is not None and cost.ratio == pytest.approx(0.12, abs=0.01)
    low, high = cost.ratio_interval
    assert 0.05 < low < cost.ratio < high < 0.2
    for k, (shares, gain) in GB10.items():
        expected = expected_tokens(shares) / cost.at(k)
        assert gain == pytest.approx(expected, rel=0.12), "theory without a cost misses K=8 by more than half"


def test_a_step_is_free_of_the_prefill_where_that_is_known() -> None:
    # 401 tokens at 4 a step: the prefill's own, and 100 steps of 20 ms; 8 at a time
    tokens, prefill_ms, steps = 401, 500.0, 100
    tok_s = 8 * tokens / ((prefill_ms + steps * 20) / 1000)
    measured = Decoding(tok_s, 8, tokens / (steps + 1), tokens, prefill_ms)
    assert step_ms(measured) == pytest.approx(20)
    assert tok_s_of(measured, 20, measured.tokens_per_step) == pytest.approx(tok_s)
    unknown = measured._replace(prefill_ms=None)
    assert step_ms(unknown) == pytest.approx(2500 / 101), "spread over all steps"
    assert tok_s_of(unknown, step_ms(unknown), unknown.tokens_per_step) == pytest.approx(tok_s)


def within(half: float, rates: dict[int, float]) -> Callable[[int, int], Ratio]:
    def compare(one: int, other: int) -> Ratio:
        middle = log(rates[one] / rates[other])
        return Ratio(middle, middle - half, middle + half)

    return compare


def name(k: int) -> str:
    return f"K={k}"


def test_a_smaller_one_is_taken_where_noise_hides_the_difference_or_it_is_less_than_a_percent() -> None:
    rates = {0: 100.0, 1: 140.0, 2: 150.0, 4: 152.0}
    assert smallest_within_noise(rates, within(0.02, rates), name).chosen == 2
    assert smallest_within_noise(rates, within(0.002, rates), name).chosen == 4
    rates = {1: 149.0, 4: 150.0}
    assert smallest_within_noise(rates, within(0.0001, rates), name).chosen == 1


def test_too_much_noise_decides_nothing_and_what_was_never_compared_is_named() -> None:
    rates = {0: 95.0, 1: 98.0, 4: 100.0}
    found = smallest_within_noise(rates, within(0.12, rates), name)
    assert found.chosen is None and found.fastest == 4
    assert found.refusal.startswith("too noisy: K=0 is within noise of K=4, and may yet be 16% slower")

    def compare(one: int, other: int) -> Ratio | None:
        return None if one == 2 else within(0.01, rates)(one, other)

    rates = {1: 100.0, 2: 101.0, 4: 120.0}
    found = smallest_within_noise(rates, compare, name)
    assert (found.chosen, found.refusal) == (None, "nothing says how far noise goes between K=4 and K=2")


def test_two_gains_of_two_machines_differ_by_both_their_noises() -> None:
    one, other = Estimate(log(1.5), log(1.47), log(1.53), 4, 0.01), Estimate(log(1.6), log(1.55), log(1.65), 4, 0.01)
    ratio = apart(one, other)
    assert exp(ratio.log) == pytest.approx(1.5 / 1.6)
    assert ratio.log - ratio.lo == pytest.approx(((log(1.5 / 1.47)) ** 2 + (log(1.65 / 1.6)) ** 2) ** 0.5)
    assert ratio.lo < ratio.log < ratio.hi
