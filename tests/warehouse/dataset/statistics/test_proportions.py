"""Special functions and shares, against printed tables and by hand."""

from __future__ import annotations

import math
from itertools import combinations
from statistics import fmean

import pytest

from warehouse.dataset.statistics.proportions import exact_interval, pass_at_k
from warehouse.ledger.formulas.beta import binomial_at_most, incomplete_beta, student_quantile, student_tail


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
