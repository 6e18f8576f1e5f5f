"""Cells that were tried and not measured, and parts of a run that were consolidated apart, as the page shows them."""

import re
from typing import Any

import pytest

from tests.warehouse.report.pages import AR, MTP, Page, frame, placebo, row, seen, speed_pair, tables_of, visit
from warehouse.dataset.tables import ATTEMPTS, K_CURVES, RESULTS_CONSOLIDATED
from warehouse.report.answer import answers, caveats
from warehouse.report.display.figures import Row
from warehouse.report.display.view import View, make_view
from warehouse.report.placebo_section import placebo_section
from warehouse.report.trust_sections import attempts_section, unmeasured_section


def tried(technique: str, attempt: int = 1, outcome: str = "failed", **columns: Any) -> Row:
    known = {
        "run_id": "r1", "cell_key": technique, "technique": technique, "model": "m", "precision": "bf16", "gpu": "h100",
        "engine": "e", "weights": "real", "attempt": attempt, "outcome": outcome, "unmeasured": ["smoke", "throughput"],
        "reason": f"the engine died: {technique}", "ended_at": f"2026-11-22T1{attempt}:00:00+00:00",
    }  # fmt: skip
    return dict.fromkeys(ATTEMPTS.column_names()) | known | columns


def shown(view: View) -> str:
    return "" if (section := unmeasured_section(view)) is None else Page(section).text.partition(" tries ")[2]


def test_a_cell_that_never_started_is_told_with_its_last_reason_and_its_tries() -> None:
    dflash = [tried("dflash", 2, reason="CUDA out of memory", k=15), tried("dflash", k=15)]
    view = View([AR], [], [*dflash, tried("ar", outcome="completed")], 0)
    assert shown(view) == "dflash K=15 CUDA out of memory everything failed 2"
    assert caveats(view)[-1] == "Tried, and not measured or not whole: dflash K=15. See Not measured."
    view = View([AR, MTP], [], [tried("mtp", k=4, outcome="lost", unmeasured=["throughput@2", "parity"])], 0)
    assert shown(view) == "mtp K=4 the engine died: mtp throughput@2, parity lost 1", "what is missing"


@pytest.mark.parametrize(
    "attempts",
    [
        [tried("mtp"), tried("mtp", 2, "completed", unmeasured=[])],
        [tried("mtp", outcome="lost", unmeasured=[])],
        [tried("mtp"), tried("mtp", 2, "completed", run_id="r2", unmeasured=[])],
        [tried("mtp", outcome="completed", unmeasured=["throughput@2"])],
    ],
    ids=["measured since", "lost behind its work", "measured by another run", "half-way"],
)
def test_what_is_measured_is_not_told(attempts: list[Row]) -> None:
    view = View([AR, MTP], [], attempts, 0)
    assert unmeasured_section(view) is None and not caveats(view)


def test_cells_of_several_models_are_named_with_theirs_and_the_head_names_only_some() -> None:
    attempts = [tried(f"mtp-{number}", model=f"m{number % 2}") for number in range(6)]
    assert caveats(View([AR], [], attempts, 0))[-1] == (
        "Tried, and not measured or not whole: m0 mtp-0, m0 mtp-2, m0 mtp-4, m1 mtp-1 and 2 others. See Not measured."
    )


def test_a_night_that_measured_only_a_control_takes_nothing_off_the_page_and_is_told() -> None:
    later = {"run_id": "r2", "measured_at": "2026-11-23T10:00:00+00:00"}
    cut = row("mtp", k=4, condition=None, mode=None, verdict="suspect", reasons=["not_measured"], **later)
    curve = {name: MTP.get(name) for name in K_CURVES.column_names()} | {"measured_in": "r1"}
    tables = tables_of(
        results_consolidated=[AR, MTP, cut],
        pairs=[speed_pair(MTP), placebo(AR)],
        attempts=[tried("mtp", k=4, run_id="r2", outcome="lost", unmeasured=["throughput"])],
        k_curves=[curve],
        recommendations=[curve],
    )
    view = make_view(tables)
    assert [each["tok_s"] for each in view.rates] == [80.0, 160.0] and view.older_rows == 0
    assert [answer.verdict[:9] for answer in answers(view)] == ["Run mtp K"]
    assert len(view.k_curves) == len(view.recommendations) == 1
    assert shown(view) == "mtp K=4 r2 the engine died: mtp throughput lost 1"
    assert [each["run_id"] for each in view.flagged()] == ["r2"], "its control's seconds stay among the flagged rows"
    whole = frame(RESULTS_CONSOLIDATED, AR, MTP, MTP | later | {"tok_s": 150.0})
    assert [each["tok_s"] for each in make_view(tables | {"results_consolidated": whole}).rates] == [80.0, 150.0]


RENTED = {"rented_s": 1200.0, "cloud": "aws", "spot": True, "price_source": "none"}


def spreads(*rows: Row) -> list[list[str]]:
    """Start sd, repeat sd and repeats per start, by row of the table of noise."""
    visits = [visit(1, cell_key=each["cell_key"], repeats=2 + place) for place, each in enumerate(rows)]
    shown = placebo_section(seen(*rows, visits=visits)) or ""
    cells = [re.findall(r'<td class="n">([^<]*)</td>', each) for each in shown.split("<tr>")[2:]]
    return [[start, repeat, repeats] for start, repeat, _, repeats, _ in cells]


EARLY, LATE = AR | {"start_sd": 0.01, "repeat_sd": 0.02}, MTP | {"start_sd": 0.04, "repeat_sd": 0.06}


def test_parts_of_a_run_with_spreads_of_their_own_are_shown_apart_and_say_whose_they_are() -> None:
    """Else three rows of one condition and one run could not be told apart."""
    ngram = row("ngram", 100.0, start_sd=0.01, repeat_sd=0.02)
    assert spreads(EARLY, LATE, ngram) == [["1.0%", "2.0%", "3.0"], ["4.0%", "6.0%", "3.0"]]
    apart = placebo_section(seen(EARLY, LATE)) or ""
    assert "short c=1<small>m AR</small>" in apart and "short c=1<small>m mtp K=4</small>" in apart
    together = placebo_section(seen(EARLY, LATE | {"start_sd": 0.01})) or ""
    assert "start sd" in together and "m AR" not in together


@pytest.mark.parametrize("fitted", [0.01, None])
def test_rows_of_one_spread_or_of_none_are_shown_together(fitted: float | None) -> None:
    rows = [AR | {"start_sd": 0.01, "repeat_sd": 0.03}, MTP | {"start_sd": fitted, "repeat_sd": 0.03}]
    assert spreads(*rows) == [["1.0%", "3.0%", "2.5"]]


def paid(technique: str, attempt: int, cost_usd: float | None, **columns: Any) -> Row:
    return tried(technique, attempt, "completed", wall_s=600.0, cost_usd=cost_usd, **columns)


@pytest.mark.parametrize(
    ("attempts", "said"),
    [
        ([paid("ar", 1, None)], "1 attempt, 10.0 minutes of machines. Of 1 cell"),
        ([paid("ar", 1, 1.5), paid("ar", 2, 0.5)], "2 attempts, 20.0 minutes of machines, $2.00. Of 1 cell"),
        (
            [paid("ar", 1, 1.5), paid("ar", 2, 0.5), paid("mtp", 1, None, **RENTED)],
            "3 attempts, 40.0 minutes of machines, $2.00 for the 2 with a price.<",
        ),
    ],
    ids=["none", "all", "some"],
)
def test_the_sum_of_the_prices_is_of_the_tries_that_have_one(attempts: list[Row], said: str) -> None:
    shown = attempts_section(View([AR, MTP], [], attempts, 0))
    assert said in shown
    assert ("no attempt is on record" in shown) is ("Of 1 cell" in said)
