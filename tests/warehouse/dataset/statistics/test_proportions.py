"""Shares of few trials, what n items can show, and percentiles that a sample is large enough for."""

from __future__ import annotations

import math
import random
from itertools import combinations
from statistics import fmean

import pytest

from tests.warehouse.dataset.statistics.test_accuracy import compare_counts
from warehouse.dataset.statistics.proportions import (
    carried_margin,
    detectable,
    exact_interval,
    items_needed,
    pass_at_k,
    samples_needed,
    stderr_of_difference,
)
from warehouse.dataset.statistics.quantiles import certified, fewest_for
from warehouse.ledger.formulas import binomial_at_most, incomplete_beta, student_quantile, student_tail


def test_students_quantiles_are_the_printed_ones() -> None:
    printed = {(0.025, 1): 12.7062, (0.025, 10): 2.2281, (0.05, 30): 1.6973, (0.0005, 5): 6.8688, (0.025, 120): 1.9799}
    for (tail, degrees), t in printed.items():
        assert student_quantile(tail, degrees) == pytest.approx(t, abs=5e-5)
        assert student_tail(-t, degrees) == pytest.approx(1 - tail, abs=1e-5)
    assert student_quantile(0.025, 35030) == pytest.approx(1.96, abs=1e-3)
    assert student_tail(0.0, 7) == pytest.approx(0.5)


def test_the_binomial_tail_is_its_sum() -> None:
    for n, p in ((7, 0.3), (40, 0.02), (198, 0.85)):
        total = 0.0
        for hits in range(n):
            total += math.comb(n, hits) * p**hits * (1 - p) ** (n - hits)
            assert binomial_at_most(hits, n, p) == pytest.approx(total, abs=1e-11)
    assert binomial_at_most(9, 9, 0.5) == 1.0
    assert (incomplete_beta(2, 3, 0.0), incomplete_beta(2, 3, 1.0)) == (0.0, 1.0)


def test_exact_intervals_by_hand() -> None:
    assert exact_interval(3, 3) == pytest.approx((0.025 ** (1 / 3), 1.0))
    assert exact_interval(0, 10) == pytest.approx((0.0, 1 - 0.025 ** (1 / 10)))
    assert exact_interval(2, 3) == pytest.approx((0.0943, 0.9916), abs=5e-5)
    low, high = exact_interval(4, 20)
    assert binomial_at_most(4, 20, high) == pytest.approx(0.025)
    assert 1 - binomial_at_most(3, 20, low) == pytest.approx(0.025)


def test_pass_at_k_is_the_mean_over_all_choices_of_k_answers() -> None:
    for counts in ([0, 1, 3, 5], [5, 5], [0]):
        for k in (1, 2, 5):
            items = [[1] * right + [0] * (5 - right) for right in counts]
            tried = fmean(fmean(any(chosen) for chosen in combinations(item, k)) for item in items)
            assert pass_at_k(counts, 5, k) == pytest.approx(tried)
    with pytest.raises(ValueError, match="pass@6"):
        pass_at_k([1], 5, 6)


def test_198_items_at_a_discordance_of_15_percent() -> None:
    assert detectable(198, 0.15) == pytest.approx(0.0771, abs=5e-5)
    assert carried_margin(198, 0.15) == pytest.approx(0.0684, abs=5e-5)
    assert stderr_of_difference(198, 0.15) == pytest.approx(0.0275, abs=5e-5)


def test_items_for_a_margin() -> None:
    assert [items_needed(margin, 0.15) for margin in (0.05, 0.03, 0.02, 0.01)] == [371, 1031, 2319, 9274]
    assert items_needed(0.05, 0.15, samples=4) == 93


@pytest.mark.parametrize("discordance", [0.05, 0.15, 0.4])
@pytest.mark.parametrize("samples", [1, 3, 8])
def test_the_items_asked_for_carry_the_margin_and_one_less_does_not(discordance: float, samples: int) -> None:
    n = items_needed(0.04, discordance, samples)
    assert carried_margin(n, discordance, samples) <= 0.04 < carried_margin(n - 1, discordance, samples)


def test_answers_per_item_for_a_margin() -> None:
    assert samples_needed(198, 0.03, 0.15) == 6
    assert carried_margin(198, 0.15, 6) <= 0.03 < carried_margin(198, 0.15, 5)


def test_what_the_plan_foretells_is_what_the_comparison_finds() -> None:
    assert detectable(198, 30 / 200) == pytest.approx(compare_counts(198, 14, 15, 0.05, "row").mde)


def test_a_plan_for_many_cells_is_held_to_what_holm_asks_of_each() -> None:
    assert carried_margin(198, 0.15, comparisons=9) == pytest.approx(0.0931, abs=5e-5)
    assert items_needed(0.05, 0.15, comparisons=9) == 686
    assert samples_needed(198, 0.03, 0.15, comparisons=9) == 10
    for comparisons in (1, 4, 40):
        n = items_needed(0.04, 0.15, 2, comparisons)
        assert carried_margin(n, 0.15, 2, comparisons) <= 0.04 < carried_margin(n - 1, 0.15, 2, comparisons)
    with pytest.raises(ValueError, match="at least one cell"):
        items_needed(0.05, 0.15, comparisons=0)


@pytest.mark.parametrize(("percent", "fewest"), [(50, 6), (90, 36), (95, 72), (99, 368), (5, 72)])
def test_the_fewest_values_that_bound_a_percentile(percent: float, fewest: int) -> None:
    values = [float(number) for number in range(fewest)]
    assert fewest_for(percent) == fewest
    assert certified(values, percent) == pytest.approx((fewest - 1) * percent / 100)
    assert certified(values[1:], percent) is None


def test_with_one_value_less_the_largest_would_miss_the_percentile_too_often() -> None:
    draw = random.Random(0)
    below = sum(max(draw.random() for _ in range(72)) < 0.95 for _ in range(20_000)) / 20_000
    assert below < 0.03
    assert 0.95**71 > 0.025 > 0.95**72


def test_prompts_that_were_asked_twice_certify_nothing_more() -> None:
    values = [1.0] * 80
    assert certified(values, 95, independent=40) is None
    assert certified(values, 90, independent=40) == 1.0
