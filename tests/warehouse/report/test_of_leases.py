"""What the page says of parts of a run that were consolidated apart, as leases are: their spreads, their tries."""

from __future__ import annotations

import re
from typing import Any

import pytest

from tests.warehouse.report.rows import AR, MTP, row, seen, visit
from warehouse.dataset.tables import ATTEMPTS
from warehouse.report.display.figures import Row
from warehouse.report.display.view import View
from warehouse.report.placebo_section import placebo_section
from warehouse.report.trust_sections import attempts_section

RENTED = {"rented_s": 1200.0, "cloud": "aws", "spot": True, "price_source": "none"}


def spreads(*rows: Row) -> list[list[str]]:
    """Start sd, repeat sd and repeats per start, by row of the table of noise."""
    visits = [visit(1, cell_key=each["cell_key"], repeats=2 + place) for place, each in enumerate(rows)]
    shown = placebo_section(seen(*rows, visits=visits)) or ""
    cells = [re.findall(r'<td class="n">([^<]*)</td>', each) for each in shown.split("<tr>")[2:]]
    return [[start, repeat, repeats] for start, repeat, _, repeats, _ in cells]


def test_parts_of_a_run_with_spreads_of_their_own_are_shown_apart() -> None:
    early, late = {"start_sd": 0.01, "repeat_sd": 0.02}, {"start_sd": 0.04, "repeat_sd": 0.06}
    ngram = row("ngram", 100.0, start_sd=0.01, repeat_sd=0.02)
    assert spreads(AR | early, MTP | late, ngram) == [["1.0%", "2.0%", "3.0"], ["4.0%", "6.0%", "3.0"]]


def test_they_say_whose_each_spread_is() -> None:
    """Else three rows of one condition and one run could not be told apart."""
    early, late = AR | {"start_sd": 0.01, "repeat_sd": 0.02}, MTP | {"start_sd": 0.04, "repeat_sd": 0.06}
    apart = placebo_section(seen(early, late)) or ""
    assert "short c=1<small>m AR</small>" in apart and "short c=1<small>m mtp K=4</small>" in apart
    together = placebo_section(seen(early, late | {"start_sd": 0.01})) or ""
    assert "start sd" in together and "m AR" not in together


@pytest.mark.parametrize("fitted", [0.01, None])
def test_rows_of_one_spread_or_of_none_are_shown_together(fitted: float | None) -> None:
    rows = [AR | {"start_sd": 0.01, "repeat_sd": 0.03}, MTP | {"start_sd": fitted, "repeat_sd": 0.03}]
    assert spreads(*rows) == [["1.0%", "3.0%", "2.5"]]


def tried(technique: str, attempt: int, cost_usd: float | None, **columns: Any) -> Row:
    known = {"run_id": "r1", "cell_key": technique, "technique": technique, "model": "m", "precision": "bf16"}
    took = {"attempt": attempt, "outcome": "completed", "wall_s": 600.0, "cost_usd": cost_usd}
    return dict.fromkeys(ATTEMPTS.column_names()) | known | took | columns


@pytest.mark.parametrize(
    ("attempts", "said"),
    [
        ([tried("ar", 1, None)], "1 attempt, 10.0 minutes of machines. Of 1 cell"),
        ([tried("ar", 1, 1.5), tried("ar", 2, 0.5)], "2 attempts, 20.0 minutes of machines, $2.00. Of 1 cell"),
        (
            [tried("ar", 1, 1.5), tried("ar", 2, 0.5), tried("mtp", 1, None, **RENTED)],
            "3 attempts, 40.0 minutes of machines, $2.00 for the 2 with a price.<",
        ),
    ],
    ids=["none", "all", "some"],
)
def test_the_sum_of_the_prices_is_of_the_tries_that_have_one(attempts: list[Row], said: str) -> None:
    shown = attempts_section(View([AR, MTP], [], attempts, 0))
    assert said in shown
    assert ("no attempt is on record" in shown) is ("Of 1 cell" in said)
