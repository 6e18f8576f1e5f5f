"""What takes a claim away, and from whom: headline, placebo section and pairs say the same."""

from __future__ import annotations

import pytest

from tests.warehouse.read_page import page_of
from tests.warehouse.report.rows import AR, MTP, row, seen, text_of, viewed, visit
from tests.warehouse.report.started import placebo, speed_pair
from tests.warehouse.visited import VisitedRun
from warehouse.dataset.tables import ATTEMPTS
from warehouse.ledger.store import Store
from warehouse.report.display.figures import MINUS, NOTHING
from warehouse.report.display.view import View
from warehouse.report.placebo_section import placebo_section, start_seconds


@pytest.mark.parametrize("said", [{}, {"reasons": ["no_placebo"], "conclusion": "inconclusive"}])
def test_where_no_placebo_could_be_made_headline_and_section_claim_nothing(said: dict[str, object]) -> None:
    view = seen(AR, MTP, pairs=(speed_pair(MTP, **said),))
    text = text_of(view)
    assert text.startswith("No claim: AR was not held against itself.") and "2.00 × AR" in text  # noqa: RUF001
    assert "No speed on this page is a claim." in (placebo_section(view) or "")


def test_a_bracket_that_is_alone_in_its_run_claims_nothing(local: Store) -> None:
    run = VisitedRun(local)
    run.bracket("mtp", 2, 100.0, 160.0, 101.0)
    text = page_of(local).text
    assert "No claim: AR was not held against itself." in text and "Run mtp" not in text
    assert "run two cells or more, bracketed or mirrored" in text and "No speed on this page is a claim." in text
    assert "engine start of AR" in text and "No AR cell has been measured" not in text, "its controls are shown"


def test_a_placebo_of_one_condition_does_not_vouch_for_another() -> None:
    elsewhere = placebo(AR | {"condition": "long c=1"})
    view = seen(AR, MTP, pairs=(speed_pair(MTP, reasons=["no_placebo"], conclusion="inconclusive"), elsewhere))
    assert text_of(view).startswith("No claim: AR was not held against itself.")
    shown = placebo_section(view) or ""
    assert "AR was not held against itself: short c=1 in run r1. No speedup there is a claim." in shown


def test_the_placebo_says_what_it_could_have_seen() -> None:
    wide = placebo(AR | {"condition": "long c=8"}, ratio_detectable=1.25)
    one = placebo_section(seen(AR, MTP, pairs=(placebo(AR),))) or ""
    smaller = "a smaller difference does not survive the correction of p."
    assert f"It could not have seen less than 3.5%: {smaller}" in one and ">3.5%</td>" in one
    two = placebo_section(seen(AR, MTP, pairs=(placebo(AR), wide))) or ""
    assert f"less than 3.5% to 25.0% by condition: {smaller}" in two
    for ratio, factor in ((4.8, "4.8"), (1e6, "100 or more")):
        blind = placebo(AR | {"condition": "load c=1"}, ratio_detectable=ratio)
        three = placebo_section(seen(AR, MTP, pairs=(placebo(AR), blind))) or ""
        assert f"less than 3.5% to a factor of {factor} by condition: {smaller}" in three
        told = f">factor {factor}</td>"
        assert told in three and "%" not in three[three.index(told) :].partition("</tr>")[0]


def test_what_placebos_could_have_seen_is_told_of_each_run() -> None:
    blind = placebo(AR | {"run_id": "r2"}, ratio_detectable=4.8)
    shown = placebo_section(seen(AR, MTP, AR | {"run_id": "r2"}, pairs=(placebo(AR), blind))) or ""
    assert "It could not have seen less than 3.5% in run r1; a factor of 4.8 in run r2: a smaller" in shown


def test_a_placebo_whose_reach_is_unknown_says_nothing_of_it() -> None:
    old = placebo_section(seen(AR, MTP, pairs=(placebo(AR, ratio_detectable=None),))) or ""
    assert "AR against AR: no difference seen under any condition.</p>" in old


@pytest.mark.parametrize(("drift", "said"), [(-0.004, f"{MINUS}0.40 %"), (None, NOTHING)])
def test_a_drift_that_nothing_could_tell_is_no_drift_of_nought(drift: float | None, said: str) -> None:
    pairs = (speed_pair(MTP, drift=drift), placebo(AR, drift=drift))
    noise = (placebo_section(seen(AR, MTP, pairs=pairs)) or "").partition("How much a speed varies")[2]
    cells = [each.partition("<")[0] for each in noise.partition("<tbody>")[2].split('<td class="n">')[1:]]
    assert cells[2] == said and "a dash: too few starts to tell one" in noise


def test_several_starts_without_an_interval_are_not_called_one_start() -> None:
    words = "2.00 x: no claim: the two were not measured about the same middle"
    pair = speed_pair(MTP, ratio_lo=None, ratio_hi=None, conclusion="inconclusive", wording=words)
    text = text_of(seen(AR, MTP, pairs=(pair, placebo(AR))))
    assert text.startswith("No claim: no interval.") and words in text and "one start" not in text


FLAGGED = row(
    "dflash", 320.0, speedup=4.0, k=7, verdict="suspect", reasons=["speedup_above_acceptance"], speedup_lo=3.9
)


def test_a_suspect_speedup_is_never_quoted_and_is_told_with_its_flag() -> None:
    pairs = (speed_pair(MTP, conclusion="inconclusive"), speed_pair(FLAGGED, conclusion="inconclusive"), placebo(AR))
    text = text_of(seen(AR, MTP, FLAGGED, pairs=pairs))
    assert "The best of 1 other was mtp K=4 with 2.00 × AR" in text and "4.00" not in text  # noqa: RUF001
    assert "Flagged, hence not compared: dflash K=7 (suspect: speedup_above_acceptance)." in text
    alone = text_of(seen(AR, FLAGGED, pairs=(speed_pair(FLAGGED), placebo(AR))))
    assert alone.startswith("No speedup can be stated.") and "4.00" not in alone
    assert "dflash K=7 (suspect: speedup_above_acceptance)" in alone


def test_a_failed_placebo_of_one_run_does_not_silence_another_run() -> None:
    fast = row("dflash", 240.0, run_id="r2", k=7, speedup=3.0)
    other = AR | {"run_id": "r2"}
    failed = placebo(other, conclusion="differs", ratio_p_holm=0.004)
    pairs = (speed_pair(MTP), placebo(AR), speed_pair(fast), failed)
    view = seen(AR, MTP, other, fast, pairs=pairs)
    text = text_of(view)
    assert text.startswith("Run mtp K=4: 2.00 × AR at short c=1") and "3.00" not in text  # noqa: RUF001
    assert "No claim is made about dflash K=7 (AR against AR reads as a difference in run r2)." in text
    assert "The speed claims of this run are withheld." in (placebo_section(view) or "")


@pytest.mark.parametrize(
    ("marks", "shown"),
    [
        ({"acceptance_source": "replayed:anchors"}, None),
        ({"weights": "dummy"}, "AR†"),
        ({"weights": "dummy", "denoising_steps": 16}, "AR†"),
    ],
)
def test_a_placebo_has_the_weights_of_the_cell_it_stands_under_and_not_its_acceptance(
    marks: dict[str, str | int], shown: str | None
) -> None:
    mtp = MTP | marks
    of_control = placebo(AR, cell_key="mtp", baseline_cell_key="ar")
    section = placebo_section(viewed([mtp], [speed_pair(mtp), of_control])) or ""
    assert f">{shown or 'AR'}</th>" in section and "replayed" not in section


def test_a_start_takes_what_tries_that_ended_well_say_starting_took() -> None:
    tried = dict.fromkeys(ATTEMPTS.column_names()) | {"run_id": "r1", "cell_key": "mtp", "attempt": 1}
    bracket = [visit(1, role="control"), visit(1), visit(2, role="control")]
    visits = [each | {"cell_key": "mtp"} for each in bracket]
    ended = tried | {"outcome": "completed", "load_s": 400.0, "wall_s": 9000.0, "idle_s": 5000.0}
    graded = row("mtp", step="eval-tiny", metric="accuracy", attempt=1)
    with_evaluation = View([MTP | {"attempt": 1}, graded], [], [ended], 0, visits)
    assert start_seconds(with_evaluation, "r1") == 100.0, "control, cell, control, and a start for what isn't timed"
    assert start_seconds(View([MTP], [], [ended], 0, visits), "r1") == pytest.approx(400 / 3)
    memory = row("mtp", step="memory", condition="full context", attempt=1)
    assert start_seconds(View([MTP, memory], [], [ended], 0, visits), "r1") == pytest.approx(400 / 3), "in the same"
    unknown = [ended | {"load_s": None}, ended | {"outcome": "lost"}]
    assert start_seconds(View([MTP], [], unknown, 0, visits), "r1") is None


def test_a_head_without_a_speedup_says_where_and_names_the_claims_that_stand_elsewhere() -> None:
    alone = MTP | {"speedup": None}
    assert text_of(seen(alone)).startswith("No speedup can be stated. There is no trusted AR row")
    long = MTP | {"step": "depth", "condition": "tg128", "mode": "decode", "context_tokens": 512}
    view = seen(alone, long, pairs=(speed_pair(long), placebo(long)))
    assert text_of(view).startswith("No speedup can be stated at short c=1. There is no trusted AR row")
    assert text_of(view).endswith("Claims stand under other conditions: mtp K=4 2.00 × AR at tg128.")  # noqa: RUF001
    loads = [long | {"condition": f"tg128 @ d{depth}", "depth_tokens": depth} for depth in range(5)]
    many = seen(alone, *loads, pairs=(*map(speed_pair, loads), *map(placebo, loads)))
    assert text_of(many).endswith("Claims stand under other conditions: 5 of depth.")


def test_a_drift_that_all_conditions_of_two_starts_share_is_seen() -> None:
    shapes = ("short c=1", "short c=4", "long c=1", "load c=8", "load c=8, qa")
    ratios = (0.97, 0.96, 1.01, 0.95, 0.5)
    pairs = [
        placebo(AR | {"condition": shape, "cell_key": "mtp"}, ratio=ratio)
        for shape, ratio in zip(shapes, ratios, strict=True)
    ]
    shown = placebo_section(seen(AR, MTP, pairs=(*pairs, placebo(AR)))) or ""
    joint = shown.partition("All conditions of two starts together")[2].partition("</table>")[0]
    cells = [each.partition("<")[0] for each in joint.partition("<tbody>")[2].split('<td class="n">')[1:]]
    assert cells == ["4", "0.972", "3"], "the category is a part of load c=8; AR's own pair has one condition"
    assert "mtp K=4" in joint and "host/card" in joint
    assert "All conditions of two starts" not in (placebo_section(seen(AR, MTP, pairs=(placebo(AR),))) or "")
