"""Interim looks: published boundaries, and what ends an evaluation."""

from __future__ import annotations

from statistics import NormalDist

import pytest

from warehouse.statistics.paired import compare_counts
from warehouse.statistics.sequential import adjusted_p, boundaries, levels, spent, stop

LAN_DEMETS = {
    (0.5, 1.0): [2.9626, 1.9686],
    (0.25, 0.5, 0.75, 1.0): [4.3326, 2.9631, 2.3590, 2.0141],
    (0.2, 0.4, 0.6, 0.8, 1.0): [4.8769, 3.3569, 2.6803, 2.2898, 2.0310],
}
"""Published boundaries, O'Brien-Fleming type spending, two-sided 5 % (2.5 % each side)."""


@pytest.mark.parametrize("looks", LAN_DEMETS)
def test_boundaries_are_the_published_ones(looks: tuple[float, ...]) -> None:
    found = boundaries(looks, [spent(look, 0.025) for look in looks])
    assert found == pytest.approx(LAN_DEMETS[looks], abs=2e-4)


def test_one_look_is_the_plain_test() -> None:
    assert levels([1.0]) == pytest.approx([0.05])
    assert levels([1.0], 0.01) == pytest.approx([0.01])


def test_levels_rise_and_spend_no_more_than_alpha() -> None:
    for looks in ((0.5, 0.75, 1.0), (0.25, 0.5, 0.75, 1.0), (0.1, 0.9, 1.0)):
        found = levels(looks)
        assert found[0] == pytest.approx(spent(looks[0], 0.05))
        assert 0.03 < found[-1] < 0.05 < sum(found)
    assert levels([0.5, 0.75, 1.0]) == pytest.approx([0.00557, 0.02156, 0.04109], abs=1e-5)


def test_the_levels_are_on_the_safe_side_for_a_one_sided_test() -> None:
    for looks in ((0.5, 1.0), (0.25, 0.5, 0.75, 1.0), (0.8, 0.9, 1.0)):
        exact = [NormalDist().cdf(-bound) for bound in boundaries(looks, [spent(look, 0.05) for look in looks])]
        assert all(level <= one_sided + 1e-9 for level, one_sided in zip(levels(looks), exact, strict=True))


def test_adjusted_p_values_meet_alpha_where_the_levels_are_met() -> None:
    assert adjusted_p(0.00557, 0.00557) == pytest.approx(0.05)
    assert adjusted_p(0.001, 0.00557) < 0.05 < adjusted_p(0.006, 0.00557)
    assert adjusted_p(0.5, 0.00557) == 1.0
    assert adjusted_p(0.03, 0.05) == 0.03


def test_an_evaluation_ends_only_where_its_verdict_is_clear() -> None:
    early = levels([0.5, 1.0])[0]
    assert stop(compare_counts(99, 2, 30, 0.05, "row"), early) == "worse"
    assert stop(compare_counts(500, 15, 15, 0.05, "row"), early) == "non-inferior"
    assert stop(compare_counts(99, 3, 13, 0.05, "row"), early) is None, "p = .02 is not clear at the first look"
    assert stop(compare_counts(99, 5, 10, 0.05, "row"), early) is None, "hopeless is no verdict"
    assert stop(compare_counts(99, 30, 2, 0.05, "row"), early) == "non-inferior"


def test_a_verdict_that_other_comparisons_could_take_back_ends_nothing() -> None:
    found = compare_counts(500, 15, 15, 0.05, "row")
    assert adjusted_p(found.ni_p, 0.00557) < 0.05 / 10
    assert stop(found, 0.00557, comparisons=10) == "non-inferior"
    weaker = compare_counts(300, 15, 12, 0.05, "row")
    assert stop(weaker, 0.00557) == "non-inferior"
    assert stop(weaker, 0.00557, comparisons=10) is None
