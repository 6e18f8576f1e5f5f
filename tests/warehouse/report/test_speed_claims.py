"""What the page says about speed: claims of starts only, their placebo, and what takes a claim away, and from whom."""

import re

import pytest

from tests.warehouse.report.pages import AR, MTP, page_of, placebo, row, seen, speed_pair, text_of, viewed, visit
from tests.warehouse.runs import VisitedRun
from warehouse.dataset.consolidate.comparable import barred, cells_that_fail_parity
from warehouse.dataset.consolidate.rows import Judged, Result
from warehouse.dataset.tables import ATTEMPTS, BILLED_PHASES
from warehouse.ledger.store import Store
from warehouse.report.answer import caveats
from warehouse.report.cost_section import cost_section
from warehouse.report.display.figures import MINUS, NOTHING, Row
from warehouse.report.display.view import View
from warehouse.report.placebo_section import placebo_section, start_seconds
from warehouse.report.steps.throughput import acceptance_section, baseline_section, speed_section

REPLAYED, DUMMY = {"acceptance_source": "replayed:anchors"}, {"weights": "dummy"}


def placebos_of(view: View) -> str:
    return placebo_section(view) or ""


def test_a_speed_is_claimed_where_the_pair_of_starts_says_faster_and_the_placebo_holds() -> None:
    view = seen(AR, MTP, pairs=(speed_pair(MTP), placebo(AR)))
    text = text_of(view)
    assert text.startswith("Run mtp K=4: 2.00 × AR at short c=1, if its accuracy holds. 160 tokens/s, 2.00 × AR")  # noqa: RUF001
    assert "(95 % interval 1.96 to 2.04 over 2 starts of it and 2 of AR)" in text
    shown = placebos_of(view)
    assert "AR against AR: no difference seen under any condition." in shown
    assert "0.980 to 1.027" in shown and "no difference seen</span>" in shown


def test_a_pair_that_does_not_say_faster_or_is_withheld_for_its_placebo_is_no_claim_whatever_its_row_says() -> None:
    text = text_of(seen(AR, MTP, pairs=(speed_pair(MTP, conclusion="inconclusive"), placebo(AR))))
    assert text.startswith("Stay with AR: nothing else was shown to be faster.") and "Holm" not in text
    text = text_of(seen(AR, MTP, pairs=(speed_pair(MTP, conclusion="inconclusive", ratio_p_holm=0.11), placebo(AR))))
    assert "2 of AR). Corrected for the run's other cells, that is no claim (p = 0.110, Holm)." in text
    withheld = speed_pair(MTP, conclusion="inconclusive", reasons=["placebo_failed"])
    assert text_of(seen(AR, MTP, pairs=(withheld,))).startswith("No claim: AR against AR reads as a difference")


def test_one_start_each_makes_no_claim_and_several_without_an_interval_are_not_called_one() -> None:
    single = MTP | {"speedup_lo": None, "speedup_hi": None, "visits": 1}
    single |= {"tok_s_lo": 158.0, "tok_s_hi": 162.0, "interval_scope": "within one start"}
    pair = speed_pair(single, ratio_lo=None, ratio_hi=None, visits=1, baseline_visits=1, conclusion="inconclusive")
    view = seen(AR | {"visits": 1}, single, pairs=(pair,))
    text = text_of(view)
    assert text.startswith("No claim: one start each. mtp K=4 ran at 160 tokens/s, 2.00 × AR, within one")  # noqa: RUF001
    assert "run it bracketed or mirrored" in text and "Run mtp" not in text
    assert "within one start" in speed_section(view)
    assert "No speed on this page is a claim." in placebos_of(view)
    words = "2.00 x: no claim: the two were not measured about the same middle"
    pair = speed_pair(MTP, ratio_lo=None, ratio_hi=None, conclusion="inconclusive", wording=words)
    text = text_of(seen(AR, MTP, pairs=(pair, placebo(AR))))
    assert text.startswith("No claim: no interval.") and words in text and "one start" not in text


def test_a_placebo_that_reads_as_a_difference_takes_every_claim_away_and_is_loud() -> None:
    failed = placebo(AR, ratio=1.08, ratio_lo=1.05, ratio_hi=1.11, ratio_p_holm=0.004, conclusion="differs")
    view = seen(AR, MTP, pairs=(speed_pair(MTP), failed))
    assert text_of(view).startswith("No claim: AR against AR reads as a difference in this run.")
    shown = placebos_of(view)
    assert "<b>AR against AR reads as a difference: short c=1 in run r1.</b>" in shown
    assert "The speed claims of this run are withheld." in shown and "differs: it must not" in shown


def test_a_broken_lossless_technique_is_never_the_headline_and_the_page_says_why() -> None:
    parity = {"step": "parity", "condition": None, "mode": None, "parity_n": 12, "first_divergence": 0}
    control = row("ar", **parity, parity_equal=12)
    broken = row("mtp", **parity, parity_equal=0, parity_near_ties=0, divergence_margin=7.0)
    slower = row("dflash", 120.0, speedup=1.5, speedup_lo=1.47, speedup_hi=1.53, k=7)
    rows = [AR, MTP, slower, control, broken]
    results = [Result(each, Judged(each["verdict"], tuple(each["reasons"]))) for each in rows]
    rows = [each.row for each in barred(results, cells_that_fail_parity(results, {("r1", "mtp")}))]
    view = seen(*rows, pairs=(speed_pair(slower), placebo(AR)))
    text = text_of(view)
    assert text.startswith("Run dflash K=7: 1.50 × AR at short c=1")  # noqa: RUF001
    assert "Not recommended: its outputs leave AR's where AR repeats itself (mtp K=4, 160 tokens/s)." in text
    alone = text_of(seen(*(each for each in rows if each["technique"] != "dflash"), pairs=(placebo(AR),)))
    assert alone.startswith("No speedup can be stated. AR ran at 80.0 tokens/s. Not recommended: its outputs leave")


def test_that_there_is_no_trusted_ar_row_is_only_said_where_there_is_none() -> None:
    rejected = row("mtp", 160.0, k=4, verdict="rejected", reasons=["stream_mismatch"])
    text = text_of(seen(AR, rejected))
    assert "no trusted AR row" not in text
    assert "AR ran at 80.0 tokens/s. What stands beside AR can't be divided by it: mtp K=4 (rejected: " in text
    ok = row("mtp", 160.0, k=4)
    lost = AR | {"verdict": "rejected", "reasons": ["short_output"]}
    text = text_of(seen(lost, ok))
    assert "There is no trusted AR row to divide by. It is rejected: short_output. mtp K=4 ran at 160" in text


def test_ar_of_another_gpu_or_measured_again_does_not_remove_the_one_that_a_speedup_rests_on() -> None:
    elsewhere = AR | {"run_id": "r2", "gpu": "cpu", "tok_s": 9.0, "measured_at": "2026-11-23T10:00:00+00:00"}
    view = viewed([AR, MTP, elsewhere], [speed_pair(MTP), placebo(AR)])
    assert {(each["gpu"], each["tok_s"]) for each in view.rates} == {("h100", 80.0), ("h100", 160.0), ("cpu", 9.0)}
    assert view.older_rows == 0 and len(view.pairs) == 2
    again = AR | {"run_id": "r2", "tok_s": 81.0, "measured_at": "2026-11-23T10:00:00+00:00"}
    view = viewed([AR, MTP, again], [speed_pair(MTP)])
    assert sorted(each["tok_s"] for each in view.rates) == [80.0, 81.0, 160.0]
    fp8 = AR | {"cell_key": "ar-fp8", "precision": "fp8", "tok_s": 120.0, "speedup": 1.5}
    across = speed_pair(fp8, kind="precision", baseline_cell_key=AR["cell_key"], compared_as=AR["model"])
    view = viewed([AR, fp8, again], [across])
    assert sorted(each["tok_s"] for each in view.rates) == [80.0, 81.0, 120.0], "a pair across precisions rests on it"
    newer = [again, MTP | {"run_id": "r2", "measured_at": again["measured_at"]}]
    assert viewed([AR, MTP, *newer], []).older_rows == 2, "once the technique was measured again too, both are old"


@pytest.mark.parametrize(
    ("columns", "sign", "legend"),
    [
        (DUMMY, "†", "† dummy weights"),
        (REPLAYED, "‡", "‡ acceptance replayed from anchors"),
        (DUMMY | REPLAYED, "†‡", "† dummy weights, ‡ acceptance replayed from anchors"),
        (DUMMY | {"made_up": "weights=dummy, routing=random"}, "†¶", "† dummy weights, ¶ experts drawn"),
    ],
)
def test_what_was_not_truly_run_is_said_wherever_its_figure_is(columns: dict[str, str], sign: str, legend: str) -> None:
    words = re.sub("[†‡¶] ", "", legend)
    mtp = MTP | columns | {"acceptance_length": 3.1, "tokens_per_step": 3.1, "acceptance_by_position": [0.9, 0.8]}
    view = viewed([AR, mtp], [speed_pair(mtp), placebo(AR)])
    assert text_of(view).startswith(f"Without real weights there is nothing to recommend; mtp K=4 ({words}): 2.00")
    assert words.replace(", ", " or ") in caveats(view)[0]
    for shown in (speed_section(view), acceptance_section(view)):
        assert f">mtp K=4{sign}</th>" in shown, "in the table"
        assert f">{legend.replace(', ', '; ')}</p>" in shown, "once below it"
        drawings = shown.split("<svg")[1:]
        assert drawings and all(f">mtp K=4{sign}</text>" in each for each in drawings)
        assert all(f">{words}</text>" in each for each in drawings for words in legend.split(", "))


def test_what_was_sent_needed_and_drafted_is_told_beside_a_speed() -> None:
    sent = speed_section(seen(AR, MTP | {"prompt_tokens": 95.0}))
    assert "sent 95 tokens, not 64" in sent
    assert "tokens, not" not in speed_section(seen(AR, MTP | {"prompt_tokens": 64.4}))
    shown = speed_section(seen(AR, MTP | {"mbu": 0.114})) or ""
    assert "MBU ≥</th>" in shown and "11%</td>" in shown
    tiny = speed_section(seen(AR, MTP | {"mbu": 0.00114})) or ""
    assert "0.11%</td>" in tiny and ">0%</td>" not in tiny
    lookup = row("ngram", 90.0, speedup=1.04, k=4, acceptance_length=3.5, tokens_per_step=1.05)
    shown = acceptance_section(seen(AR, lookup))
    assert "1.04 × AR, 1.05 tokens a step" in shown  # noqa: RUF001
    assert "3.50</td>" in shown and "1.05</td>" in shown


@pytest.mark.parametrize(("verdict", "is_named"), [("ok", True), ("suspect", False)])
def test_a_start_that_a_trusted_figure_is_made_without_is_named(verdict: str, is_named: bool) -> None:
    ar = AR | {"machine": "host/card", "verdict": verdict}
    visits = [visit(1, technique="ar", verdict="suspect"), visit(2, technique="ar"), visit(3, technique="ar")]
    shown = placebos_of(View([ar], [placebo(AR)], [], 0, visits))
    assert ("other starts: AR, start 1, short c=1" in shown) == is_named


def test_noise_and_the_repeats_that_are_worth_their_cost_stand_below_the_placebo() -> None:
    tried = dict.fromkeys(ATTEMPTS.column_names()) | {"run_id": "r1", "cell_key": "ar", "wall_s": 9000.0}
    tries = [
        tried | {"attempt": 1, "outcome": "completed", "load_s": 200.0},
        tried | {"attempt": 2, "outcome": "completed"},
        tried | {"attempt": 3, "outcome": "failed", "load_s": 700.0},
    ]
    visits = [visit(1), visit(2), visit(3, complete=False)]
    view = View([AR | {"gpu_s": 60.0}], [placebo(AR)], tries, 0, visits)
    shown = placebos_of(view)
    assert "1.0%" in shown and "2.0%" in shown and "−0.40 %" in shown  # noqa: RUF001
    assert "1 row of visits.parquet was cut short" in shown and "left out" not in shown
    assert ">5</td>" in shown, "sqrt(66.7 s of a start / 10 s of a repeat) x 2 % / 1 %"


def test_what_controls_cost_is_told_beside_what_the_rows_cost_and_only_of_rows_that_are_shown() -> None:
    phases = {f"{phase}_{unit}": 0.0 for phase in BILLED_PHASES for unit in ("s", "usd")}
    bill = phases | {"rented_s": 7200.0, "cost_usd": 4.0, "measure_s": 7200.0, "measure_usd": 4.0, "ended": "done"}
    rented = dict.fromkeys(ATTEMPTS.column_names()) | {"run_id": "r1", "charged": True, **bill}
    rows = [AR | {"gpu_s": 1800.0, "cost_usd": 1.0}, MTP | {"gpu_s": 3600.0, "cost_usd": 2.0}, MTP]
    spent = {"role": "control", "gpu_s": 900.0, "cost_usd": 0.5}
    controls = [visit(1, cell_key=key, **spent) for key in ("mtp", "mtp", "measured-anew-since")]
    shown = cost_section(View(rows, [], [rented], 0, [visit(1), *controls])) or ""
    assert "Its rows on this page took 1.50 hours ($3.00), of which controls 0.50 hours ($1.00)." in shown
    assert "on this page took" not in (cost_section(View(rows, [], [rented], 0)) or ""), "old rows don't add up"


def test_controls_of_another_model_are_shown_beside_ar_s_own_rows_and_their_signs_explained() -> None:
    control = {"role": "control", "precision": "bf16", "cell_key": "mtp"}
    others = visit(1, **control, model="other", tok_s=268.0)
    own = visit(1, **control, model="m", tok_s=83.0)
    shown = baseline_section(seen(AR, MTP, visits=(others, own))) or ""
    assert '<td class="n">80.0</td>' in shown and '<td class="n">268</td>' in shown
    assert "83.0" not in shown, "AR's own rows speak for their model"
    control = visit(1, role="control", cell_key="mtp", model="other", precision="bf16", tok_s=268.0)
    shown = baseline_section(seen(AR, MTP | {"weights": "dummy"}, visits=(control,))) or ""
    assert ">mtp K=4†</td>" in shown and ">† dummy weights</p>" in shown


def test_every_source_on_the_page_has_a_sign_of_its_own() -> None:
    rows = [MTP | {"cell_key": at, "acceptance_source": f"replayed:{at}"} for at in ("one", "two")]
    view = viewed([AR, *rows], [speed_pair(row) for row in rows])
    shown = speed_section(view) or ""
    assert ">‡ acceptance replayed from one; ‡² acceptance replayed from two</p>" in shown
    assert ">mtp K=4‡</th>" in shown and ">mtp K=4‡²</th>" in shown
    [bars] = shown.split("<svg")[1:]
    assert ">mtp K=4‡²</text>" in bars and ">‡² acceptance replayed from two</text>" in bars
    alone = viewed([AR, rows[1]], [speed_pair(rows[1])])
    assert ">‡ acceptance replayed from two</p>" in (speed_section(alone) or "")
    assert [(pair["cell_key"], pair["replay_number"]) for pair in view.pairs] == [("one", 1), ("two", 2)]


@pytest.mark.parametrize("said", [{}, {"reasons": ["no_placebo"], "conclusion": "inconclusive"}])
def test_where_no_placebo_could_be_made_headline_and_section_claim_nothing(said: dict[str, object]) -> None:
    view = seen(AR, MTP, pairs=(speed_pair(MTP, **said),))
    text = text_of(view)
    assert text.startswith("No claim: AR was not held against itself.") and "2.00 × AR" in text  # noqa: RUF001
    assert "No speed on this page is a claim." in placebos_of(view)


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
    shown = placebos_of(view)
    assert "AR was not held against itself: short c=1 in run r1. No speedup there is a claim." in shown


def test_the_placebo_says_what_it_could_have_seen_in_each_run_unless_that_is_unknown() -> None:
    wide = placebo(AR | {"condition": "long c=8"}, ratio_detectable=1.25)
    one = placebos_of(seen(AR, MTP, pairs=(placebo(AR),)))
    smaller = "a smaller difference does not survive the correction of p."
    assert f"It could not have seen less than 3.5%: {smaller}" in one and ">3.5%</td>" in one
    two = placebos_of(seen(AR, MTP, pairs=(placebo(AR), wide)))
    assert f"less than 3.5% to 25.0% by condition: {smaller}" in two
    for ratio, factor in ((4.8, "4.8"), (1e6, "100 or more")):
        blind = placebo(AR | {"condition": "load c=1"}, ratio_detectable=ratio)
        three = placebos_of(seen(AR, MTP, pairs=(placebo(AR), blind)))
        assert f"less than 3.5% to a factor of {factor} by condition: {smaller}" in three
        told = f">factor {factor}</td>"
        assert told in three and "%" not in three[three.index(told) :].partition("</tr>")[0]
    blind = placebo(AR | {"run_id": "r2"}, ratio_detectable=4.8)
    shown = placebos_of(seen(AR, MTP, AR | {"run_id": "r2"}, pairs=(placebo(AR), blind)))
    assert "It could not have seen less than 3.5% in run r1; a factor of 4.8 in run r2: a smaller" in shown
    old = placebos_of(seen(AR, MTP, pairs=(placebo(AR, ratio_detectable=None),)))
    assert "AR against AR: no difference seen under any condition.</p>" in old


@pytest.mark.parametrize(("drift", "said"), [(-0.004, f"{MINUS}0.40 %"), (None, NOTHING)])
def test_a_drift_that_nothing_could_tell_is_no_drift_of_nought(drift: float | None, said: str) -> None:
    pairs = (speed_pair(MTP, drift=drift), placebo(AR, drift=drift))
    noise = placebos_of(seen(AR, MTP, pairs=pairs)).partition("How much a speed varies")[2]
    cells = [each.partition("<")[0] for each in noise.partition("<tbody>")[2].split('<td class="n">')[1:]]
    assert cells[2] == said and "a dash: too few starts to tell one" in noise


FLAGGED = row(
    "dflash", 320.0, k=7, speedup=4.0, speedup_lo=3.9, verdict="suspect", reasons=["speedup_above_acceptance"]
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
    assert "The speed claims of this run are withheld." in placebos_of(view)


@pytest.mark.parametrize(
    ("marks", "shown"), [(REPLAYED, "AR"), (DUMMY, "AR†"), (DUMMY | {"denoising_steps": 16}, "AR†")]
)
def test_a_placebo_has_the_weights_of_its_cell_not_acceptance(marks: Row, shown: str) -> None:
    mtp = MTP | marks
    of_control = placebo(AR, cell_key="mtp", baseline_cell_key="ar")
    section = placebos_of(viewed([mtp], [speed_pair(mtp), of_control]))
    assert f">{shown}</th>" in section and "replayed" not in section


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
    shown = placebos_of(seen(AR, MTP, pairs=(*pairs, placebo(AR))))
    joint = shown.partition("All conditions of two starts together")[2].partition("</table>")[0]
    cells = [each.partition("<")[0] for each in joint.partition("<tbody>")[2].split('<td class="n">')[1:]]
    assert cells == ["4", "0.972", "3"], "the category is a part of load c=8; AR's own pair has one condition"
    assert "mtp K=4" in joint and "host/card" in joint
    assert "All conditions of two starts" not in placebos_of(seen(AR, MTP, pairs=(placebo(AR),)))
