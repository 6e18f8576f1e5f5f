"""What the page says about outputs that parted: ties, no ties, or nothing where nobody looked."""

from __future__ import annotations

from typing import Any

import pytest

from warehouse.dataset.tables import RESULTS_CONSOLIDATED
from warehouse.report.display.figures import Row
from warehouse.report.display.view import View
from warehouse.report.steps.parity import parity_section


def row(technique: str, equal: int, near: int | None = None, margin: float | None = None, **facts: Any) -> Row:
    known = {
        "run_id": "r1", "cell_key": technique, "model": "m", "family": "f", "precision": "bf16", "engine": "e",
        "gpu": "h100", "step": "parity", "technique": technique, "verdict": "ok", "parity_n": 12, "parity_equal": equal,
        "first_divergence": 40, "parity_near_ties": near, "divergence_margin": margin,
    }  # fmt: skip
    return dict.fromkeys(RESULTS_CONSOLIDATED.column_names()) | known | facts


@pytest.mark.parametrize(
    ("technique", "said"),
    [
        (row("mtp", 7, 5, 0.06), "all 5 parted at a near tie (gap at most 0.06 nats): floating-point ties"),
        (row("mtp", 11, 1, 0.0), "the one that parted did so at a near tie"),
        (row("mtp", 7, 3, 3.1), "2 of 5 parted where the model was sure (gap 3.1 nats): not a tie, look at it"),
    ],
)
def test_the_page_says_where_outputs_parted(technique: Row, said: str) -> None:
    page = parity_section(View([row("ar", 12), technique], [], [], 0))
    assert page.count(said) == 2, "in the finding above the table, and in the table"


def test_rows_without_gaps_are_told_as_they_always_were() -> None:
    page = parity_section(View([row("ar", 12), row("mtp", 7)], [], [], 0))
    assert "mtp (7 of 12 equal, first difference at token 40)." in page
    assert "parted at" not in page and "was sure (" not in page
