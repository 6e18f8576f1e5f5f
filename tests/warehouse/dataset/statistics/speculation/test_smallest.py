"""The smallest candidate within noise of the fastest, or the reason why none is named."""

from __future__ import annotations

from collections.abc import Callable
from math import exp, log

import pytest

from warehouse.dataset.statistics.speculation import Ratio, apart, smallest_within_noise
from warehouse.dataset.statistics.visits import Estimate


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
