"""Verdicts and their words: never more than the figures carry."""

from __future__ import annotations

from itertools import permutations

import pytest

from tests.warehouse.dataset.statistics.counts import compare_counts
from warehouse.dataset.statistics.accuracy import Standing, compare, conclude, n_needed, wording
from warehouse.dataset.statistics.proportions import holm, items_needed


def words(n: int, gained: int, lost: int, margin: float = 0.05, others: int = 1) -> str:
    found = compare_counts(n, gained, lost, margin, "row")
    p, ni_p = min(1.0, found.p * others), min(1.0, found.ni_p * others)
    return wording(found, conclude(found, p, ni_p), Standing(p, ni_p, others))


def test_holm_by_hand() -> None:
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([0.5, 0.9]) == [1.0, 1.0]
    assert holm([0.03]) == [0.03]
    assert holm([]) == []


def test_holm_keeps_the_order_and_lies_between_none_and_bonferroni() -> None:
    for values in permutations((0.001, 0.02, 0.02, 0.3)):
        adjusted = holm(values)
        assert all(p <= each <= min(1.0, 4 * p) for p, each in zip(values, adjusted, strict=True))
        ranked = [each for _, each in sorted(zip(values, adjusted, strict=True))]
        assert ranked == sorted(ranked)


def test_equal_needs_both_sides() -> None:
    assert words(198, 0, 0) == "equal within ±5.0 points (n=198, one-sided 95 %)"
    assert words(1000, 80, 80) == "equal within ±5.0 points (n=1000, one-sided 95 %)"
    assert words(198, 18, 9) == "no worse within 5.0 points (n=198, one-sided 95 %)"


def test_too_few_items_say_how_many_are_needed() -> None:
    assert words(198, 12, 18) == "cannot tell: needs about 384 items (n=198)"
    assert words(198, 12, 18, margin=0.03) == "cannot tell: needs about 1065 items (n=198)"
    undecided = compare_counts(198, 14, 15, 0.05, "row")
    assert n_needed(undecided, "inconclusive") == 371  # discordance 30 / 200, as in the plan
    assert n_needed(undecided, "inconclusive", comparisons=9) == items_needed(0.05, 0.15, comparisons=9) == 686
    assert n_needed(undecided, "worse") is n_needed(undecided, "non-inferior") is None


def test_a_loss_near_the_margin_is_not_a_matter_of_a_few_items_more() -> None:
    assert n_needed(compare_counts(2000, 60, 160, 0.05, "row"), "inconclusive") is None
    found = compare_counts(2000, 60, 160, 0.05, "row")
    assert wording(found, "inconclusive", Standing(0.5, 0.5)) == (
        "cannot tell: -5.0 points (95 % interval -6.5 to -3.6, n=2000) is too near the margin"
    )


def test_worse_says_by_how_much() -> None:
    assert words(198, 10, 50) == "worse by 20.2 points (95 % interval 13.1 to 27.5, n=198)"


def test_a_real_loss_below_the_margin_is_told_with_the_margin() -> None:
    found = compare_counts(2000, 20, 60, 0.05, "row")
    assert conclude(found, found.p, found.ni_p) == "non-inferior"
    assert words(2000, 20, 60) == (
        "worse by 2.0 points (95 % interval 1.2 to 2.9), which is within ±5.0 points (n=2000)"
    )


def test_a_real_gain_is_not_called_equality() -> None:
    assert words(500, 80, 20) == "better by 12.0 points (95 % interval 8.3 to 15.9, n=500)"


def test_many_comparisons_ask_for_more() -> None:
    assert words(198, 15, 15) == "equal within ±5.0 points (n=198, one-sided 95 %)"
    assert words(198, 15, 15, others=11) == (
        "cannot tell: it holds alone, not beside all the other comparisons; "
        "needs about 739 items as one of 11 comparisons (n=198)"
    )


def test_the_number_of_answers_is_told() -> None:
    found = compare([0.5, 0.25] * 99, [0.25, 0.5] * 99, 4, 0.05, "row")
    said = wording(found, conclude(found, found.p, found.ni_p), Standing(found.p, found.ni_p))
    assert said == "equal within ±5.0 points (n=198 with 4 answers each, one-sided 95 %)"


def test_nothing_is_ever_called_lossless() -> None:
    for counts in ((198, 0, 0), (198, 9, 9), (198, 0, 50), (198, 50, 0), (10, 0, 0), (5000, 5, 90), (1, 0, 1)):
        for others in (1, 11):
            assert "lossless" not in words(*counts, others=others)
