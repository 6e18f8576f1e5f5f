"""Theory of speculative decoding against the papers' figures and a published K sweep; the smallest K within noise."""

from __future__ import annotations

from collections.abc import Callable
from math import exp, log

import pytest

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
from warehouse.dataset.statistics.visits import Estimate

GB10 = {
    1: ((0.782,), 1.41),
    2: ((0.762, 0.578), 1.54),
    4: ((0.722, 0.536, 0.412, 0.309), 1.75),
    8: ((0.734, 0.523, 0.371, 0.258, 0.193, 0.152, 0.110, 0.089), 1.59),
}
"""Acceptance by position and speedup (Python) of docs/sources.md: mtp-gb10, tables A.1 and A.2."""


def test_tokens_per_step_are_those_that_the_published_k_sweep_computes() -> None:
    found = {k: expected_tokens(shares) for k, (shares, _) in GB10.items()}
    assert found == pytest.approx({1: 1.78, 2: 2.34, 4: 2.98, 8: 3.43}, abs=0.011)


def test_geometric_tokens_are_those_of_leviathan_and_all_of_them_where_all_are_accepted() -> None:
    assert geometric_tokens(0.8, 5) == pytest.approx(3.689, abs=1e-3)
    assert geometric_tokens(0.0, 4) == 1 and geometric_tokens(1.0, 4) == 5


@pytest.mark.parametrize("k", [1, 2, 4, 8])
def test_one_rate_is_found_again_in_the_positions_that_it_makes(k: int) -> None:
    shares = [0.7**place for place in range(1, k + 1)]
    assert acceptance_rate(shares) == pytest.approx(0.7)
    assert geometric_tokens(0.7, k) == pytest.approx(expected_tokens(shares))
    assert acceptance_rate([]) is None and acceptance_rate([0.0] * k) == 0 and acceptance_rate([1.0] * k) == 1


def test_the_cost_of_a_draft_is_found_in_the_steps_and_not_assumed() -> None:
    cost = fitted_cost([(0, 1.0), (1, 1.1), (2, 1.2), (4, 1.4), (8, 1.8)])
    assert cost is not None
    assert (cost.target, cost.draft, cost.points) == (pytest.approx(1.0), pytest.approx(0.1), 5)
    assert cost.ratio_interval == pytest.approx((0.1, 0.1)) and cost.at(4) == pytest.approx(1.4)
    assert fitted_cost([(0, 1.0), (4, 1.3)]) is None, "two points fit any line"


def test_the_published_k_sweep_costs_about_an_eighth_of_a_step_for_each_drafted_token() -> None:
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


def test_a_smaller_one_is_taken_where_noise_hides_the_difference() -> None:
    rates = {0: 100.0, 1: 140.0, 2: 150.0, 4: 152.0}
    assert smallest_within_noise(rates, within(0.02, rates), name).chosen == 2
    assert smallest_within_noise(rates, within(0.002, rates), name).chosen == 4


def test_a_loss_of_less_than_a_percent_is_not_worth_a_larger_one_however_sure_it_is() -> None:
    rates = {1: 149.0, 4: 150.0}
    assert smallest_within_noise(rates, within(0.0001, rates), name).chosen == 1


def test_noise_that_may_hide_more_than_a_tenth_decides_nothing() -> None:
    rates = {0: 95.0, 1: 98.0, 4: 100.0}
    found = smallest_within_noise(rates, within(0.12, rates), name)
    assert found.chosen is None and found.fastest == 4
    assert found.refusal.startswith("too noisy: K=0 is within noise of K=4, and may yet be 16% slower")


def test_what_was_never_compared_is_named() -> None:
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
