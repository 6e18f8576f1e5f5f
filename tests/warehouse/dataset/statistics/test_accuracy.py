"""Comparisons of accuracy, against figures from the literature, from docs/sources.md and from hand; and their words."""

import math
import random
from itertools import permutations
from statistics import fmean, stdev
from typing import Any

import pytest

from warehouse.dataset.statistics.accuracy import (
    MARGIN,
    Comparison,
    Conclusion,
    carries_lossless,
    compare,
    conclude,
    mcnemar_p,
    n_needed,
    tango_interval,
    wording,
)
from warehouse.dataset.statistics.proportions import Z_TWO_SIDED, holm, items_needed, proportion_stderr, wilson_interval
from warehouse.dataset.statistics.quantiles import drawn_binomial, interval, quantile, resampled_means_of_few


def compare_counts(n: int, gained: int, lost: int, margin: float, identity: str | None) -> Comparison:
    technique = [1.0] * gained + [0.0] * (n - gained)
    baseline = [0.0] * gained + [1.0] * lost + [0.0] * (n - gained - lost)
    return compare(baseline, technique, 1, margin, identity)


Z95 = 1.959963984540054


def compared(n: int, gained: int, lost: int) -> tuple[Comparison, Conclusion]:
    """A comparison alone, at a margin of five points, and its verdict."""
    found = compare_counts(n, gained, lost, MARGIN, "row")
    return found, conclude(found, found.p, found.ni_p)


@pytest.mark.parametrize(
    ("gained", "lost", "p"), [(0, 0, 1.0), (0, 6, 2 / 64), (12, 18, 0.3616), (5, 0, 0.0625), (1000, 1000, 1.0)]
)
def test_mcnemar_is_exact(gained: int, lost: int, p: float) -> None:
    assert mcnemar_p(gained, lost) == pytest.approx(p, abs=5e-5)


def test_tangos_limits_are_where_the_constrained_likelihood_ratio_scores_z() -> None:
    n, gained, lost = 44, 0, 1
    for limit in tango_interval(n, gained, lost, Z95):
        # the nuisance parameter found by brute force over the multinomial likelihood, not by the closed form
        shares = (share / 1e5 for share in range(1, 50_000))
        best = max(shares, key=lambda p: _log_likelihood(n, gained, lost, limit, p))
        z = (gained - lost - n * limit) / (n * (2 * best + limit * (1 - limit))) ** 0.5
        assert abs(z) == pytest.approx(Z95, abs=2e-3)


def _log_likelihood(n: int, gained: int, lost: int, difference: float, p_lost: float) -> float:
    p_gained = p_lost + difference
    rest = 1 - p_lost - p_gained
    if p_gained < 0 or rest <= 0 or (gained and p_gained == 0):
        return -math.inf
    of_gained = gained * math.log(p_gained) if gained else 0
    return lost * math.log(p_lost) + of_gained + (n - gained - lost) * math.log(rest)


def test_no_discordant_item_still_leaves_room_for_a_difference_and_an_interval_solves_its_equation_at_the_edges() -> (
    None
):
    low, high = tango_interval(198, 0, 0, Z95)
    assert (low, high) == pytest.approx((-(Z95**2) / (198 + Z95**2), Z95**2 / (198 + Z95**2)))
    assert compared(48, 0, 0)[1] == "inconclusive"
    assert compared(198, 0, 0)[1] == "non-inferior"
    for n, gained, lost in ((5, 5, 0), (5, 0, 5), (1, 0, 0), (1, 1, 0), (20, 10, 10)):
        low, high = tango_interval(n, gained, lost, Z95)
        assert -1 <= low <= (gained - lost) / n <= high <= 1


def test_the_diffusion_loss_of_mtp_diffusion_h100_is_worse_and_its_mtp_is_not_decided() -> None:
    diffusion, verdict = compared(198, 10, 50)
    assert (diffusion.delta, verdict) == (pytest.approx(-40 / 198), "worse")
    mtp, verdict = compared(198, 12, 18)
    assert (mtp.delta, verdict) == (pytest.approx(-0.0303, abs=1e-4), "inconclusive")
    assert mtp.delta_lo < mtp.bound_lo < mtp.delta < mtp.delta_hi


def test_what_an_n_could_have_seen_and_one_arms_spread() -> None:
    assert compared(198, 0, 30)[0].mde == pytest.approx(0.077, abs=0.002)  # 15 % discordant -> .077
    assert compared(198, 0, 0)[0].mde > 0
    assert proportion_stderr(0.75, 48) == pytest.approx(0.0625)
    assert wilson_interval(1.0, 10) == pytest.approx((0.7225, 1.0), abs=1e-3)
    assert wilson_interval(0.5, 100) == pytest.approx((0.4038, 0.5962), abs=1e-3)


def test_lossless_needs_parity_control_accuracy_and_no_proven_loss() -> None:
    full = (12, 12)
    equal = ("non-inferior", 0.0, 1.0)
    assert carries_lossless(full, full, *equal)
    assert not carries_lossless((11, 12), full, *equal)
    assert not carries_lossless(full, (4, 12), *equal)
    assert not carries_lossless(full, full, "inconclusive", 0.0, 1.0)
    assert not carries_lossless((3, 3), (3, 3), *equal)
    assert not carries_lossless(None, full, *equal)
    assert not carries_lossless(full, None, *equal)
    found, verdict = compared(2000, 10, 50)
    assert verdict == "non-inferior" and found.p < 1e-6
    assert not carries_lossless(full, full, verdict, found.delta, found.p)
    assert carries_lossless(full, full, verdict, -found.delta, found.p), "a gain is no loss"


def test_a_quantile_and_holm_by_hand() -> None:
    assert quantile([0.0, 10.0], 0.25) == 2.5
    assert quantile([3.0], 0.9) == 3.0
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([0.5, 0.9]) == [1.0, 1.0]
    assert holm([0.03]) == [0.03]
    assert holm([]) == []


def words(n: int, gained: int, lost: int, margin: float = 0.05, others: int = 1) -> str:
    found = compare_counts(n, gained, lost, margin, "row")
    p, ni_p = min(1.0, found.p * others), min(1.0, found.ni_p * others)
    return wording(found, conclude(found, p, ni_p), p, others)


def test_holm_keeps_the_order_and_lies_between_none_and_bonferroni() -> None:
    for values in permutations((0.001, 0.02, 0.02, 0.3)):
        adjusted = holm(values)
        assert all(p <= each <= min(1.0, 4 * p) for p, each in zip(values, adjusted, strict=True))
        ranked = [each for _, each in sorted(zip(values, adjusted, strict=True))]
        assert ranked == sorted(ranked)


@pytest.mark.parametrize(
    ("counts", "others", "said"),
    [
        ((198, 0, 0), 1, "equal within ±5.0 points (n=198, one-sided 95 %)"),
        ((1000, 80, 80), 1, "equal within ±5.0 points (n=1000, one-sided 95 %)"),
        ((198, 18, 9), 1, "no worse within 5.0 points (n=198, one-sided 95 %)"),
        ((198, 12, 18), 1, "cannot tell: needs about 384 items (n=198)"),
        ((198, 12, 18, 0.03), 1, "cannot tell: needs about 1065 items (n=198)"),
        ((198, 10, 50), 1, "worse by 20.2 points (95 % interval 13.1 to 27.5, n=198)"),
        ((2000, 20, 60), 1, "worse by 2.0 points (95 % interval 1.2 to 2.9), which is within ±5.0 points (n=2000)"),
        ((500, 80, 20), 1, "better by 12.0 points (95 % interval 8.3 to 15.9, n=500)"),
        ((198, 15, 15), 1, "equal within ±5.0 points (n=198, one-sided 95 %)"),
        ((198, 15, 15), 11, "cannot tell: it holds alone, not beside all the other comparisons; "
         "needs about 739 items as one of 11 comparisons (n=198)"),
    ],
)  # fmt: skip
def test_a_verdict_says_what_was_shown_and_how_much_is_missing(counts: tuple[Any, ...], others: int, said: str) -> None:
    assert words(*counts, others=others) == said


def test_the_items_needed_are_told_unless_a_loss_is_near_the_margin() -> None:
    undecided = compare_counts(198, 14, 15, 0.05, "row")
    assert n_needed(undecided, "inconclusive") == 371  # discordance 30 / 200, as in the plan
    assert n_needed(undecided, "inconclusive", comparisons=9) == items_needed(0.05, 0.15, comparisons=9) == 686
    assert n_needed(undecided, "worse") is n_needed(undecided, "non-inferior") is None
    near = compare_counts(2000, 60, 160, 0.05, "row")
    assert n_needed(near, "inconclusive") is None
    said = "cannot tell: -5.0 points (95 % interval -6.5 to -3.6, n=2000) is too near the margin"
    assert wording(near, "inconclusive", 0.5) == said


def test_the_number_of_answers_is_told() -> None:
    found = compare([0.5, 0.25] * 99, [0.25, 0.5] * 99, 4, 0.05, "row")
    said = wording(found, conclude(found, found.p, found.ni_p), found.p)
    assert said == "equal within ±5.0 points (n=198 with 4 answers each, one-sided 95 %)"


@pytest.mark.parametrize("others", [1, 11])
def test_nothing_is_ever_called_lossless(others: int) -> None:
    for counts in ((198, 0, 0), (198, 9, 9), (198, 0, 50), (198, 50, 0), (10, 0, 0), (5000, 5, 90), (1, 0, 1)):
        assert "lossless" not in words(*counts, others=others)


def mirrored(found: Comparison) -> tuple[float, ...]:
    return found.delta, found.delta_lo, found.delta_hi, found.bound_lo, found.bound_hi, found.p


@pytest.mark.parametrize("counts", [(198, 12, 18), (198, 10, 50), (198, 0, 0), (48, 3, 1), (12, 0, 12), (1, 0, 0)])
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
        found = compare(baseline, technique, samples, 0.05, "row")
        swapped = compare(technique, baseline, samples, 0.05, "row")
        assert -1 <= found.delta_lo < found.bound_lo < found.delta < found.bound_hi < found.delta_hi <= 1
        assert found.boot_lo <= found.delta <= found.boot_hi
        delta, low, high, bound_lo, bound_hi, p_value = mirrored(swapped)
        assert mirrored(found) == pytest.approx((-delta, -high, -low, -bound_hi, -bound_lo, p_value))
        assert (found.ni_p < 0.05) == (found.bound_lo > -0.05)
        if samples > 1:
            assert (found.p < 0.05) == (found.delta_lo > 0 or found.delta_hi < 0)


def test_no_item_that_differs_still_leaves_room_for_a_difference_and_the_same_thirds_are_the_same() -> None:
    same = [0.25, 0.5, 1.0] * 66
    found = compare(same, same, 4, 0.05, "row")
    assert (found.delta, found.p) == (0.0, 1.0)
    assert found.delta_lo < -0.01 and found.delta_hi > 0.01
    assert found.mde > 0
    few = compare([0.5] * 20, [0.5] * 19 + [0.75], 4, 0.05, "row")
    assert few.ni_p > 0.05, "twenty items say nothing about five points"
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


@pytest.mark.parametrize(
    ("n", "p"), [(1, 0.5), (20, 0.1), (20, 0.95), (12000, 0.075), (500, 0.001), (7, 0), (7, 1), (0, 0.5)]
)
def test_drawn_binomials_have_their_mean_and_spread(n: int, p: float) -> None:
    source = random.Random(1)
    drawn = [drawn_binomial(source, n, p) for _ in range(4000)]
    spread = (n * p * (1 - p)) ** 0.5
    assert all(0 <= each <= n for each in drawn)
    assert fmean(drawn) == pytest.approx(n * p, abs=4 * spread / 4000**0.5)
    assert stdev(drawn) == pytest.approx(spread, rel=0.06)
