"""What n items can show, against the figures that the plan quotes."""

from __future__ import annotations

import pytest

from tests.warehouse.dataset.statistics.counts import compare_counts
from warehouse.dataset.statistics.proportions import (
    carried_margin,
    detectable,
    items_needed,
    samples_needed,
    stderr_of_difference,
)


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
