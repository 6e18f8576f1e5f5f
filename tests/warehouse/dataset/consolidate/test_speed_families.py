"""Claims about speed are corrected for the comparisons that may claim something, and for no others."""

from __future__ import annotations

import pytest

from tests.warehouse.report.rows import row
from tests.warehouse.report.started import speed_pair
from warehouse.dataset.consolidate.speed.settled import among_others, concluded
from warehouse.report.display.figures import Row


def pairs(*verdicts: str) -> list[Row]:
    """One that is significant as one of two comparisons and not as one of three, and others that show nothing."""
    return among_others(
        [
            speed_pair(
                row("mtp", 100.0 + k, k=k, cell_key=f"mtp {k}", speedup=1.5, verdict=verdict),
                ratio_p=0.02 if k == 0 else 0.6,
                wording="1.50 x [1.47, 1.53]",
            )
            for k, verdict in enumerate(verdicts)
        ]
    )


@pytest.mark.parametrize("verdict", ["suspect", "rejected"])
def test_a_row_that_is_not_ok_neither_claims_nor_counts(verdict: str) -> None:
    claim, _, flagged = pairs("ok", "ok", verdict)
    assert (claim["conclusion"], claim["ratio_p_holm"]) == ("faster", pytest.approx(0.04))
    assert (flagged["conclusion"], flagged["ratio_p_holm"]) == ("inconclusive", None)


def test_a_row_of_the_dataset_says_what_its_comparison_concludes() -> None:
    rows = [row("ar", 100.0), row("mtp", 150.0, cell_key="mtp 0"), row("mtp", None, cell_key="mtp 0", mode="stream")]
    said = [[each["conclusion"] for each in concluded(rows, found)] for found in (pairs("ok"), pairs("ok", "ok", "ok"))]
    assert said == [[None, "faster", None], [None, "inconclusive", None]], "corrected, as its interval isn't"


def test_rows_that_are_ok_all_count() -> None:
    claim, *_ = pairs("ok", "ok", "ok")
    assert (claim["conclusion"], claim["ratio_p_holm"]) == ("inconclusive", pytest.approx(0.06))
    assert claim["wording"].endswith("inconclusive as one of 3 comparisons (p = 0.06)")
