"""Intervals whose unit is a start, shares of few trials, and percentiles that a sample is large enough for."""

import math
import random
from itertools import combinations
from random import Random
from statistics import fmean

import pytest

from tests.warehouse.dataset.statistics.test_accuracy import compare_counts
from warehouse.dataset.statistics.proportions import (
    carried_margin,
    detectable,
    exact_interval,
    holm,
    items_needed,
    pass_at_k,
    samples_needed,
    stderr_of_difference,
)
from warehouse.dataset.statistics.quantiles import certified, fewest_for
from warehouse.dataset.statistics.repeats import Repeats, moderated
from warehouse.dataset.statistics.starts import (
    MOST_REPEATS,
    Arm,
    Components,
    StartRates,
    best_repeats,
    components,
    placebo_interval,
    rate_interval,
    ratio_interval,
    scatter,
)
from warehouse.ledger.formulas import binomial_at_most, incomplete_beta, student_quantile, student_tail


def visit(log_rate: float, position: float | None = None, sd: float = 0.0, repeats: int = 3) -> StartRates:
    """Repeats that lie evenly about a log rate, with this standard deviation."""
    aside = [number - (repeats - 1) / 2 for number in range(repeats)]
    scale = math.sqrt(sum(each * each for each in aside) / max(1, repeats - 1)) or 1.0
    return StartRates(tuple(log_rate + sd * each / scale for each in aside), log_rate, position)


def drawn(random: Random, start_sd: float, sd: float, place: float, repeats: int = 3, level: float = 5.0) -> StartRates:
    start = level + random.gauss(0, start_sd)
    rates = tuple(start + random.gauss(0, sd) for _ in range(repeats))
    return StartRates(rates, math.log(repeats / sum(math.exp(-rate) for rate in rates)), place)


@pytest.mark.parametrize(
    ("degrees", "quantile"), [(1, 12.706), (2, 4.3027), (3, 3.1824), (4, 2.7764), (10, 2.2281), (30, 2.0423)]
)
def test_t_quantiles_are_those_of_printed_tables(degrees: int, quantile: float) -> None:
    assert student_quantile(0.025, degrees) == pytest.approx(quantile, rel=2e-5)


def test_start_variance_by_hand() -> None:
    """Two arms with differences of .02 and .04: mean square (.02^2 + .04^2) / 2 / 2; repeats take 1.06 * .003^2 / 3."""
    arms = tuple((visit(5.0, sd=0.003), visit(5.0 + apart, sd=0.003)) for apart in (0.02, 0.04))
    found = components(arms)
    assert found.start_df == 2 and found.drift == 0.0
    assert found.start_var == pytest.approx(0.0005 - 1.06 * 0.003**2 / 3)


def test_a_ratio_and_its_interval_by_hand() -> None:
    """Four degrees of freedom of the starts, whose variance is .02^2; the arms' repeats are as still as a clock."""
    found = Components(start_var=0.02**2, start_df=4, drift=0.0)
    cell, base = (visit(5.5),), (visit(5.0), visit(5.0))
    estimate = ratio_interval(cell, base, found)
    assert estimate is not None
    half = 2.7764 * 0.02 * math.sqrt(1 + 1 / 2)
    assert (estimate.log, estimate.lo, estimate.hi) == pytest.approx((0.5, 0.5 - half, 0.5 + half), rel=1e-4)
    assert estimate.df == pytest.approx(4, rel=1e-4)
    assert estimate.p < 0.001


def test_repeats_that_differ_bring_their_own_degrees_of_freedom() -> None:
    """Nothing known of other arms: Satterthwaite of the starts' 4 and of 2 in each arm's repeats."""
    found = Components(start_var=0.02**2, start_df=4, drift=0.0)
    estimate = ratio_interval((visit(5.5, sd=0.04),), (visit(5.0, sd=0.01),), found)
    assert estimate is not None
    parts = ((2 * 0.02**2, 4), (0.04**2 / 3, 2), (0.01**2 / 3, 2))
    var = sum(part for part, _ in parts)
    assert estimate.df == pytest.approx(var**2 / sum(part**2 / df for part, df in parts), rel=0.01)
    assert estimate.hi - estimate.log == pytest.approx(student_quantile(0.025, estimate.df) * math.sqrt(var), rel=0.01)


@pytest.mark.parametrize("drift", [0.0, 0.005, -0.03])
def test_a_linear_drift_cancels_from_ratios_and_is_no_start_variance(drift: float) -> None:
    random = Random(4)
    starts = [(random.gauss(0, 0.01), random.gauss(0, 0.01)) for _ in range(6)]

    def mirrored(slope: float) -> list[Arm]:
        places = [(number, 11 - number) for number in range(6)]
        return [
            tuple(visit(5 + start + slope * place, place, sd=0.002) for start, place in zip(pair, where, strict=True))
            for pair, where in zip(starts, places, strict=True)
        ]

    still, drifting = mirrored(0.0), mirrored(drift)
    calm, found = components(still), components(drifting)
    assert found.start_var == pytest.approx(calm.start_var)
    assert found.drift - calm.drift == pytest.approx(drift)
    for arm_still, arm_drifting in zip(still[1:], drifting[1:], strict=True):
        expected = ratio_interval(arm_still, still[0], calm)
        assert ratio_interval(arm_drifting, drifting[0], found) == pytest.approx(expected)
    assert placebo_interval(drifting[0], found) == pytest.approx(placebo_interval(still[0], calm))


def test_a_drift_that_does_not_cancel_is_taken_out_and_two_differences_are_too_few_for_one() -> None:
    arms = [(visit(5 + 0.01 * place, place), visit(5 + 0.01 * (place + 1), place + 1)) for place in (0, 4, 8, 12)]
    found = components(arms)
    estimate = ratio_interval(arms[3], arms[0], found)
    assert found.drift == pytest.approx(0.01)
    assert estimate is not None and estimate.log == pytest.approx(0.0, abs=1e-9)
    arms = [(visit(5.0, 0), visit(5.02, 1)), (visit(6.0, 2), visit(6.02, 3))]
    assert components(arms).drift == 0.0 and components(arms).start_df == 2


def test_other_middles_without_a_fitted_drift_are_no_claim() -> None:
    """Planted: AR first and last of four, the cell second and lost on its way back; one difference fits no drift."""
    ar = (visit(5.0, 1, sd=0.001), visit(5.03, 4, sd=0.001))
    found = components([ar, (visit(5.5, 2, sd=0.001),)])
    assert found.start_df == 1 and found.drift == 0.0
    assert ratio_interval((visit(5.5, 2, sd=0.001),), ar, found) is None
    assert ratio_interval((visit(5.5, 2.5, sd=0.001),), ar, found) is not None


def test_a_p_value_is_stricter_than_its_interval() -> None:
    """By hand: no more degrees than the starts' 3, and repeats of .02 on average though the cell's are steadier."""
    arms = [(visit(5.0, sd=0.02), visit(5.0 + apart, sd=0.02)) for apart in (0.03, -0.03, 0.04)]
    cell = (visit(5.2, sd=1e-5), visit(5.2, sd=1e-5))
    found = components([*arms, cell])._replace(start_df=3)
    estimate = ratio_interval(cell, arms[0], found)
    assert estimate is not None and estimate.df > 3
    least = sum(arm.df * arm.var for arm in found.repeats) / sum(arm.df for arm in found.repeats)
    own = [max(least, moderated(arm, found.repeats).var) for arm in (found.repeats[3], found.repeats[0])]
    error = math.sqrt(found.start_var + sum(own) / 6)
    assert estimate.p == pytest.approx(2 * student_tail(estimate.log / error, 3), rel=1e-3)


@pytest.mark.parametrize(("start_sd", "sds"), [(0.01, (0.005, 0.05)), (0.03, (0.02, 0.02))])
def test_four_identical_cells_have_a_false_claim_once_in_twenty(start_sd: float, sds: tuple[float, float]) -> None:
    """Planted: 6 to 11 % of such mirrored families had one; two standard errors of 600 runs are 1.8 %."""
    random, runs, false = Random(5), 600, 0
    for _ in range(runs):
        spreads = [sds[0], *[sds[1]] * 3]
        arms = [tuple(drawn(random, start_sd, sd, place, 9) for place in (at, 7 - at)) for at, sd in enumerate(spreads)]
        found = components(arms)
        estimates = [ratio_interval(cell, arms[0], found) for cell in arms[1:]]
        false += min(holm([each.p for each in estimates if each is not None])) < 0.05
    assert false / runs <= 0.05 + 0.018


def test_one_start_or_one_repeat_of_each_has_no_claim() -> None:
    """By hand: t of two degrees of freedom times the standard error over three repeats."""
    cell, base = (visit(5.5, sd=0.01),), (visit(5.0, sd=0.01),)
    found = components([cell, base])
    assert found.start_df == 0
    assert ratio_interval(cell, base, found) is None
    assert placebo_interval(base, found) is None
    rate = rate_interval(cell, found)
    assert rate is not None
    assert rate.hi - rate.log == pytest.approx(4.3027 * 0.01 / math.sqrt(3), rel=1e-4)
    once = (visit(5.0, repeats=1), visit(5.1, repeats=1))
    twice = (visit(5.0, sd=0.01), visit(5.1, sd=0.01))
    found = components([once, twice, twice])
    assert found.start_df == 2, "only arms whose repeats are known"
    assert rate_interval(once, found) is None
    assert ratio_interval(once, twice, found) is None and ratio_interval(twice, once, found) is None


def test_a_rate_with_starts_is_wider_than_within_one_and_no_width_is_no_division_by_zero() -> None:
    arms = [(visit(5.0, sd=0.001), visit(5.0 + apart, sd=0.001)) for apart in (0.03, -0.05, 0.04)]
    across, within = rate_interval(arms[0], components(arms)), rate_interval(arms[0], components(arms[0:0]))
    assert across is not None and within is not None
    assert across.log == within.log == pytest.approx(5.015)
    assert across.hi - across.lo > 5 * (within.hi - within.lo)
    arms = [(visit(5.0, 0), visit(5.0, 3)), (visit(5.5, 1), visit(5.5, 2))]
    estimate = ratio_interval(arms[1], arms[0], components(arms))
    assert estimate is not None and estimate.lo == pytest.approx(0.5, abs=1e-4) and estimate.p < 1e-6


def test_a_placebo_is_held_against_the_other_arms() -> None:
    """AR was 30 % slower in its second visit; pooled with its own difference that would pass for start variance."""
    others: list[Arm] = [(visit(5.0, sd=0.01), visit(5.0 + apart, sd=0.01)) for apart in (0.02, -0.02, 0.03)]
    ar = (visit(5.0, sd=0.01), visit(4.7, sd=0.01))
    found = components([ar, *others])
    estimate = placebo_interval(ar, found)
    assert estimate is not None and estimate.log == pytest.approx(-0.3)
    assert estimate.p < 0.01 and estimate.hi < 0
    same = placebo_interval(others[0], found)
    assert same is not None and same.p > 0.5


def test_alike_arms_share_what_their_repeats_say_and_a_foreign_one_keeps_its_own() -> None:
    own, others = Repeats(1, 4e-4, 2), [Repeats(1, var, 2) for var in (3e-4, 5e-4, 4e-4)]
    shared = moderated(own, [own, *others])
    assert shared.df == 8 and shared.var == pytest.approx(4e-4)
    foreign = Repeats(2, 1e-8, 4)
    assert moderated(foreign, [foreign, *(Repeats(2, 4e-4, 4) for _ in range(5))]) == foreign
    assert moderated(own, [own]) == own
    assert scatter([[1.0, 2.0, 3.0], [5.0, 5.0]]) == Repeats(2, pytest.approx(2 / 3), 3)


def test_best_repeats_by_hand() -> None:
    """A start of 90 s against repeats of 10 s: sqrt(9 * 4) = 6 where repeats scatter twice as much as starts."""
    assert best_repeats(0.01**2, 0.02**2, start_s=90, repeat_s=10) == pytest.approx(6.0)
    assert best_repeats(0.03**2, 0.005**2, start_s=90, repeat_s=10) == 3
    assert best_repeats(0.0, 0.02**2, start_s=90, repeat_s=10) == MOST_REPEATS


def test_identical_arms_are_called_different_once_in_twenty_and_seldom_beside_others() -> None:
    """F1, planted: repeats of 1 %, starts that differ by 3 %: intervals over repeats called most of them different.

    Alone it is 5 %, and chance in 300 runs of two pairs moves that by 1 %; after Holm's correction it is below.
    """
    random = Random(20261122)
    alone = beside = 0
    runs, cells = 300, 3
    for _ in range(runs):
        places = [(cell, 2 * cells - 1 - cell) for cell in range(cells)]
        arms = [tuple(drawn(random, 0.03, 0.01, place) for place in there_and_back) for there_and_back in places]
        found = components(arms)
        estimates = [ratio_interval(cell, arms[0], found) for cell in arms[1:]]
        told = [each for each in estimates if each is not None]
        assert all((each.p < 0.05) == (each.lo > 0 or each.hi < 0) for each in told)
        alone += sum(each.p < 0.05 for each in told)
        beside += sum(p < 0.05 for p in holm([each.p for each in told]))
    pairs = runs * (cells - 1)
    assert alone / pairs <= 0.05 + 2 * 0.01
    assert beside / pairs <= 0.05


def test_three_repeats_of_one_start_cover_what_they_say() -> None:
    """F1, planted: 95 % of 3 Gaussian repeats, where the percentile bootstrap covers 72 %."""
    random = Random(3)
    covered = 0
    for _ in range(300):
        arm = (drawn(random, 0.0, 0.02, 0, level=0.0),)
        rate = rate_interval(arm, components([arm]))
        assert rate is not None
        covered += rate.lo <= -0.0002 <= rate.hi
    assert 0.92 <= covered / 300 <= 0.98


def test_quantiles_and_tails_of_student_are_inverse_and_may_lie_between_two_rows_of_a_table() -> None:
    printed = {(0.025, 1): 12.7062, (0.025, 10): 2.2281, (0.05, 30): 1.6973, (0.0005, 5): 6.8688, (0.025, 120): 1.9799}
    for (tail, degrees), t in printed.items():
        assert student_quantile(tail, degrees) == pytest.approx(t, abs=5e-5)
        assert student_tail(-t, degrees) == pytest.approx(1 - tail, abs=1e-5)
    assert student_quantile(0.025, 35030) == pytest.approx(1.96, abs=1e-3)
    assert student_tail(0.0, 7) == pytest.approx(0.5)
    assert student_quantile(0.025, 3) < student_quantile(0.025, 2.5) < student_quantile(0.025, 2)
    assert student_tail(student_quantile(0.025, 2.5), 2.5) == pytest.approx(0.025)


def test_the_binomial_tail_is_its_sum_and_exact_intervals_follow_by_hand() -> None:
    for n, p in ((7, 0.3), (40, 0.02), (198, 0.85)):
        total = 0.0
        for hits in range(n):
            total += math.comb(n, hits) * p**hits * (1 - p) ** (n - hits)
            assert binomial_at_most(hits, n, p) == pytest.approx(total, abs=1e-11)
    assert binomial_at_most(9, 9, 0.5) == 1.0
    assert (incomplete_beta(2, 3, 0.0), incomplete_beta(2, 3, 1.0)) == (0.0, 1.0)
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


def test_items_and_answers_per_item_for_a_margin() -> None:
    assert detectable(198, 0.15) == pytest.approx(0.0771, abs=5e-5)
    assert carried_margin(198, 0.15) == pytest.approx(0.0684, abs=5e-5)
    assert stderr_of_difference(198, 0.15) == pytest.approx(0.0275, abs=5e-5)
    assert [items_needed(margin, 0.15) for margin in (0.05, 0.03, 0.02, 0.01)] == [371, 1031, 2319, 9274]
    assert items_needed(0.05, 0.15, samples=4) == 93
    assert samples_needed(198, 0.03, 0.15) == 6
    assert carried_margin(198, 0.15, 6) <= 0.03 < carried_margin(198, 0.15, 5)
    assert detectable(198, 30 / 200) == pytest.approx(compare_counts(198, 14, 15, 0.05, "row").mde)


@pytest.mark.parametrize("discordance", [0.05, 0.15, 0.4])
@pytest.mark.parametrize("samples", [1, 3, 8])
def test_the_items_asked_for_carry_the_margin_and_one_less_does_not(discordance: float, samples: int) -> None:
    n = items_needed(0.04, discordance, samples)
    assert carried_margin(n, discordance, samples) <= 0.04 < carried_margin(n - 1, discordance, samples)


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


def test_one_value_less_or_prompts_that_were_asked_twice_certify_nothing_more() -> None:
    draw = random.Random(0)
    below = sum(max(draw.random() for _ in range(72)) < 0.95 for _ in range(20_000)) / 20_000
    assert below < 0.03
    assert 0.95**71 > 0.025 > 0.95**72
    values = [1.0] * 80
    assert certified(values, 95, independent=40) is None
    assert certified(values, 90, independent=40) == 1.0
