"""Words of the page that point at something: they are there where it is, and name it."""

from __future__ import annotations

import pytest

from tests.warehouse.report.rows import AR, MTP, Row, row, seen
from warehouse.report.accuracy_section import TITLE, accuracy_section
from warehouse.report.answer import caveats
from warehouse.report.steps.throughput import acceptance_section

TINY, ON_CPU = {"family": "tiny-gemma4"}, {"gpu": "cpu"}


@pytest.mark.parametrize(
    ("of_ar", "of_mtp", "said"),
    [
        (TINY | ON_CPU, TINY | ON_CPU, "All of these numbers come from a tiny demonstration model on a CPU."),
        (TINY, TINY, "All of these numbers come from a tiny demonstration model."),
        (ON_CPU, ON_CPU, "All of these numbers come from a CPU."),
        ({}, TINY, "Some of these numbers come from a tiny demonstration model."),
        (TINY, ON_CPU, "All of these numbers come from a tiny demonstration model or from a CPU."),
    ],
)
def test_small_numbers_are_called_what_they_are_and_nothing_else(of_ar: Row, of_mtp: Row, said: str) -> None:
    assert caveats(seen(AR | of_ar, MTP | of_mtp))[0].startswith(f"{said} They were really measured")


def test_large_numbers_of_a_gpu_are_not_called_small() -> None:
    assert not any("really measured" in said for said in caveats(seen(AR, MTP)))


def test_a_comparison_is_pointed_at_by_its_title_and_only_where_there_is_one() -> None:
    score = row("ar", step="eval-gpqa", condition=None, mode=None, score=0.75, n=4, samples=1, extractor="last-letter")
    assert TITLE not in (accuracy_section(seen(score)) or "")
    assert TITLE not in (accuracy_section(seen(AR)) or "")
    pair = {
        "kind": "accuracy", "model": "m", "step": "eval-gpqa", "technique": "mtp", "k": 4, "run_id": "r1",
        "cell_key": "mtp", "delta": 0.0, "delta_lo": -0.1, "delta_hi": 0.1, "margin": 0.05, "mde": 0.1, "n": 4,
        "gained": 0, "lost": 0, "wording": "equal", "conclusion": "inconclusive", "look": None, "truncated_delta": 0.0,
        "mcnemar_p_holm": 1.0, "ni_p_holm": 0.5, "served_differently": [], "bound_lo": -0.1,
    }  # fmt: skip
    compared = accuracy_section(seen(score, pairs=(pair,)))
    assert f"below (“{TITLE}”)" in compared and f"<h3>{TITLE}</h3>" in compared


def test_a_dashed_line_is_explained_where_it_is_drawn() -> None:
    drafted = MTP | {"acceptance_length": 3.1, "tokens_per_step": 3.1}
    assert "; dashed: tokens per step." in acceptance_section(seen(AR, drafted))
    assert "ashed" not in acceptance_section(seen(AR, drafted | {"speedup": None}))
