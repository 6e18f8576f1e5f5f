"""Statistics against figures from the literature, from docs/sources.md and from hand."""

from __future__ import annotations

import math

import pytest

from tests.warehouse.dataset.statistics.counts import compare_counts
from warehouse.dataset.statistics.accuracy import (
    MARGIN,
    Comparison,
    Conclusion,
    carries_lossless,
    conclude,
    mcnemar_p,
    tango_interval,
)
from warehouse.dataset.statistics.proportions import proportion_stderr, wilson_interval
from warehouse.dataset.statistics.quantiles import quantile

Z95 = 1.959963984540054


def compared(n: int, gained: int, lost: int) -> tuple[Comparison, Conclusion]:
    """A comparison alone, at a margin of five points, and its verdict."""
    found = compare_counts(n, gained, lost, MARGIN, "row")
    return found, conclude(found, found.p, found.ni_p)


def test_mcnemar_is_exact() -> None:
    assert mcnemar_p(0, 0) == 1.0
    assert mcnemar_p(0, 6) == pytest.approx(2 / 64)  # six discordant, all of one kind: .031
    assert mcnemar_p(12, 18) == pytest.approx(0.36, abs=0.005)
    assert mcnemar_p(5, 0) == pytest.approx(0.0625)
    assert mcnemar_p(1000, 1000) == 1.0


def test_tangos_limits_are_where_the_constrained_likelihood_ratio_scores_z() -> None:
    n, gained, lost = 44, 0, 1
    for limit in tango_interval(n, gained, lost, Z95):
        # the nuisance parameter found by brute force over the multinomial likelihood, not by the closed form
        best = max(
            (share / 1e5 for share in range(1, 50_000)), key=lambda p: _log_likelihood(n, gained, lost, limit, p)
        )
        z = (gained - lost - n * limit) / (n * (2 * best + limit * (1 - limit))) ** 0.5
        assert abs(z) == pytest.approx(Z95, abs=2e-3)


def _log_likelihood(n: int, gained: int, lost: int, difference: float, p_lost: float) -> float:
    p_gained = p_lost + difference
    rest = 1 - p_lost - p_gained
    if p_gained < 0 or rest <= 0 or (gained and p_gained == 0):
        return -math.inf
    return (
        lost * math.log(p_lost) + (gained * math.log(p_gained) if gained else 0) + (n - gained - lost) * math.log(rest)
    )


def test_no_discordant_item_still_leaves_room_for_a_difference() -> None:
    low, high = tango_interval(198, 0, 0, Z95)
    assert (low, high) == pytest.approx((-(Z95**2) / (198 + Z95**2), Z95**2 / (198 + Z95**2)))
    assert compared(48, 0, 0)[1] == "inconclusive"
    assert compared(198, 0, 0)[1] == "non-inferior"


def test_tangos_interval_solves_its_own_equation_at_the_edges() -> None:
    for n, gained, lost in ((5, 5, 0), (5, 0, 5), (1, 0, 0), (1, 1, 0), (20, 10, 10)):
        low, high = tango_interval(n, gained, lost, Z95)
        assert -1 <= low <= (gained - lost) / n <= high <= 1


def test_the_diffusion_loss_of_mtp_diffusion_h100_is_worse_and_its_mtp_is_not_decided() -> None:
    diffusion, verdict = compared(198, 10, 50)
    assert (diffusion.delta, verdict) == (pytest.approx(-40 / 198), "worse")
    mtp, verdict = compared(198, 12, 18)
    assert (mtp.delta, verdict) == (pytest.approx(-0.0303, abs=1e-4), "inconclusive")
    assert mtp.delta_lo < mtp.bound_lo < mtp.delta < mtp.delta_hi


def test_what_an_n_could_have_seen() -> None:
    assert compared(198, 0, 30)[0].mde == pytest.approx(0.077, abs=0.002)  # 15 % discordant -> .077
    assert compared(198, 0, 0)[0].mde > 0


def test_one_arms_spread() -> None:
    assert proportion_stderr(0.75, 48) == pytest.approx(0.0625)
    assert wilson_interval(1.0, 10) == pytest.approx((0.7225, 1.0), abs=1e-3)
    assert wilson_interval(0.5, 100) == pytest.approx((0.4038, 0.5962), abs=1e-3)


def test_lossless_needs_parity_control_and_accuracy() -> None:
    full = (12, 12)
    equal = ("non-inferior", 0.0, 1.0)
    assert carries_lossless(full, full, *equal)
    assert not carries_lossless((11, 12), full, *equal)
    assert not carries_lossless(full, (4, 12), *equal)
    assert not carries_lossless(full, full, "inconclusive", 0.0, 1.0)
    assert not carries_lossless((3, 3), (3, 3), *equal)
    assert not carries_lossless(None, full, *equal)
    assert not carries_lossless(full, None, *equal)


def test_a_proven_loss_is_not_lossless_though_it_is_within_the_margin() -> None:
    found, verdict = compared(2000, 10, 50)
    assert verdict == "non-inferior" and found.p < 1e-6
    full = (12, 12)
    assert not carries_lossless(full, full, verdict, found.delta, found.p)
    assert carries_lossless(full, full, verdict, -found.delta, found.p), "a gain is no loss"


def test_a_quantile_by_hand() -> None:
    assert quantile([0.0, 10.0], 0.25) == 2.5
    assert quantile([3.0], 0.9) == 3.0
