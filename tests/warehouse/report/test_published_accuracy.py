"""The published comparison, and what its 198 items carry."""

from __future__ import annotations

import pytest

from warehouse.display.view import View
from warehouse.report.published_accuracy import (
    STRICT_MARGIN,
    counts,
    published_accuracy_section,
    published_scores,
    published_verdicts,
    right_answers,
)


def test_every_published_score_is_a_number_of_right_answers() -> None:
    for row in published_scores():
        for score in (row.ar, row.score):
            # 168 of 198, 0.8485, is published as 0.849
            assert abs(right_answers(score, row.n) / row.n - score) < 0.0006, row


@pytest.mark.parametrize("share", [0.0, 0.15, 0.25])
def test_assumed_counts_give_the_published_scores(share: float) -> None:
    for row in published_scores():
        gained, lost = counts(row, share)
        assert gained >= 0 and lost >= 0
        assert gained - lost == right_answers(row.score, row.n) - right_answers(row.ar, row.n)
        assert gained + lost >= round(share * row.n)
        assert lost <= right_answers(row.ar, row.n) and gained <= row.n - right_answers(row.ar, row.n)


def test_the_loss_of_diffusion_is_real_whatever_was_not_published() -> None:
    *others, diffusion = published_verdicts()
    assert diffusion.published.technique == "diffusion"
    assert {case.conclusion for case in diffusion[1:]} == {"worse"}
    assert diffusion.words.startswith("worse by 20.2 points (95 % interval 11.")
    assert all(row.conclusion != "worse" for row in others)


@pytest.mark.parametrize("margin", [0.05, STRICT_MARGIN])
def test_no_mtp_row_carries_effectively_unchanged(margin: float) -> None:
    mtp = [row for row in published_verdicts(margin) if row.published.technique == "mtp"]
    assert len(mtp) == 10
    assert all(row.words.startswith("cannot tell") for row in mtp)
    assert all(
        row.assumed.comparison.delta_lo <= row.assumed.comparison.delta <= row.assumed.comparison.delta_hi
        for row in mtp
    )


def test_the_section_names_source_and_margin_and_never_the_word() -> None:
    page = published_accuracy_section(View([], [], [], 0))
    assert "mtp-diffusion-h100" in page and "margin of 5 points" in page
    assert "11 published comparisons, of which 1 can be decided" in page
    assert "lossless" not in page
