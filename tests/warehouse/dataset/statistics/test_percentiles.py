"""Percentiles are told only where order statistics bound them."""

from __future__ import annotations

import random

import pytest

from warehouse.dataset.statistics.quantiles import certified, fewest_for


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
