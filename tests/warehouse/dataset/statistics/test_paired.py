"""A technique against the baseline: one or several answers per item."""

from __future__ import annotations

import random
from statistics import fmean, stdev

import pytest

from tests.warehouse.dataset.statistics.counts import compare_counts
from warehouse.dataset.statistics.accuracy import Comparison, compare, mcnemar_p, tango_interval
from warehouse.dataset.statistics.proportions import Z_TWO_SIDED
from warehouse.dataset.statistics.quantiles import drawn_binomial, interval, resampled_means_of_few

COUNTS = ((198, 12, 18), (198, 10, 50), (198, 0, 0), (48, 3, 1), (12, 0, 12), (1, 0, 0))


def mirrored(found: Comparison) -> tuple[float, ...]:
    return found.delta, found.delta_lo, found.delta_hi, found.bound_lo, found.bound_hi, found.p


@pytest.mark.parametrize("counts", COUNTS)
def test_one_answer_per_item_is_tested_exactly(counts: tuple[int, int, int]) -> None:
    n, gained, lost = counts
    found = compare_counts(*counts, 0.05, "row")
    assert (found.n, found.gained, found.lost) == counts
    assert found.delta == pytest.approx((gained - lost) / n)
    assert found.p == mcnemar_p(gained, lost)
    assert (found.delta_lo, found.delta_hi) == pytest.approx(tango_interval(n, gained, lost, Z_TWO_SIDED))
    assert found.bound_lo == pytest.approx(tango_interval(n, gained, lost, 1.6448536269514722)[0])
    assert (found.ni_p < 0.05) == (found.bound_lo > -0.05)


def test_items_are_paired_in_their_order() -> None:
    found = compare([1, 1, 0, 0, 1], [1, 0, 1, 0, 0], 1, 0.05, "row")
    assert (found.n, found.gained, found.lost) == (5, 1, 2)
    assert found.delta == pytest.approx(-0.2)
    with pytest.raises(ValueError):
        compare([1, 0], [1], 1, 0.05, "row")
    with pytest.raises(ValueError, match="0 items"):
        compare([], [], 1, 0.05, "row")


def test_several_answers_are_clustered_by_item() -> None:
    """By hand: the mean of the d, and one more item of -1 below it, 1 above it."""
    baseline, technique = [0.5, 0.75, 1.0, 0.25] * 10, [0.25, 0.75, 0.75, 0.5] * 10
    differences = [new - old for old, new in zip(baseline, technique, strict=True)]
    found = compare(baseline, technique, 4, 0.05, "row")
    assert (found.n, found.samples, found.gained, found.lost) == (40, 4, 10, 20)
    assert found.delta == pytest.approx(-0.0625)
    below = [*differences, -1.0]
    t_40 = 2.0211  # two-sided 95 %, 40 degrees of freedom, from printed tables
    assert found.delta_lo == pytest.approx(fmean(below) - t_40 * stdev(below) / 41**0.5, abs=1e-5)
    above = [*differences, 1.0]
    assert found.delta_hi == pytest.approx(fmean(above) + t_40 * stdev(above) / 41**0.5, abs=1e-5)


def test_answers_to_one_item_are_not_items() -> None:
    """Four times as many answers that all say the same carry no more than one."""
    draw = random.Random(5)
    arms = [([draw.random() < 0.8 for _ in range(200)], [draw.random() < 0.8 for _ in range(200)]) for _ in range(20)]
    for old, new in arms:
        assert mirrored(compare(old, new, 4, 0.05, "a")) == mirrored(compare(old, new, 1, 0.05, "a"))


@pytest.mark.parametrize("samples", [1, 2, 4, 8])
def test_intervals_contain_the_difference_and_mirror_when_the_arms_are_swapped(samples: int) -> None:
    draw = random.Random(samples)

    def arm(p: float) -> list[float]:
        return [sum(draw.random() < p for _ in range(samples)) / samples for _ in range(60)]

    for p in (0.5, 0.8, 0.95):
        baseline, technique = arm(p), arm(p)
        found, swapped = (
            compare(baseline, technique, samples, 0.05, "row"),
            compare(technique, baseline, samples, 0.05, "row"),
        )
        assert -1 <= found.delta_lo < found.bound_lo < found.delta < found.bound_hi < found.delta_hi <= 1
        assert found.boot_lo <= found.delta <= found.boot_hi
        delta, low, high, bound_lo, bound_hi, p_value = mirrored(swapped)
        assert mirrored(found) == pytest.approx((-delta, -high, -low, -bound_hi, -bound_lo, p_value))
        assert (found.ni_p < 0.05) == (found.bound_lo > -0.05)
        if samples > 1:
            assert (found.p < 0.05) == (found.delta_lo > 0 or found.delta_hi < 0)


def test_no_item_that_differs_still_leaves_room_for_a_difference() -> None:
    same = [0.25, 0.5, 1.0] * 66
    found = compare(same, same, 4, 0.05, "row")
    assert (found.delta, found.p) == (0.0, 1.0)
    assert found.delta_lo < -0.01 and found.delta_hi > 0.01
    assert found.mde > 0
    few = compare([0.5] * 20, [0.5] * 19 + [0.75], 4, 0.05, "row")
    assert few.ni_p > 0.05, "twenty items say nothing about five points"


def test_the_same_thirds_are_the_same() -> None:
    found = compare([1 / 3 + 1 / 3] * 30, [2 / 3] * 30, 3, 0.05, "row")
    assert (found.gained, found.lost) == (0, 0)


def test_thousands_of_items_are_compared_exactly() -> None:
    found = compare_counts(12000, 850, 950, 0.05, "row")
    assert mcnemar_p(850, 950) == pytest.approx(0.0196, abs=2e-4)  # continuity-corrected normal: z = 99 / sqrt(1800)
    assert found.boot_lo == pytest.approx(found.delta_lo, abs=3e-4)
    assert found.boot_hi == pytest.approx(found.delta_hi, abs=3e-4)


def test_few_distinct_values_are_resampled_as_many_are() -> None:
    """Against samples drawn with replacement one by one."""
    values = [0.0] * 40 + [1.0] * 7 + [-1.0] * 3
    quick, source = resampled_means_of_few(values, "row"), random.Random(1)
    slow = [fmean(source.choices(values, k=len(values))) for _ in quick]
    assert quick == resampled_means_of_few(values, "row") != resampled_means_of_few(values, "other row")
    assert fmean(quick) == pytest.approx(0.08, abs=0.005)
    assert stdev(quick) == pytest.approx(stdev(slow), rel=0.08)
    assert interval(quick) == pytest.approx(interval(slow), abs=0.021)
    assert resampled_means_of_few([0.5] * 3, "row") == [0.5] * len(quick)


@pytest.mark.parametrize(("n", "p"), [(1, 0.5), (20, 0.1), (20, 0.95), (12000, 0.075), (500, 0.001)])
def test_drawn_binomials_have_their_mean_and_spread(n: int, p: float) -> None:
    source = random.Random(1)
    drawn = [drawn_binomial(source, n, p) for _ in range(4000)]
    spread = (n * p * (1 - p)) ** 0.5
    assert all(0 <= each <= n for each in drawn)
    assert fmean(drawn) == pytest.approx(n * p, abs=4 * spread / 4000**0.5)
    assert stdev(drawn) == pytest.approx(spread, rel=0.06)


def test_a_sure_draw_is_no_draw() -> None:
    source = random.Random(1)
    assert [drawn_binomial(source, 7, p) for p in (0.0, 1.0)] == [0, 7]
    assert drawn_binomial(source, 0, 0.5) == 0
