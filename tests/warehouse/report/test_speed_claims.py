"""What the page says about speed: claims of starts only, their placebo, and what keeps a figure from being one."""

from __future__ import annotations

import pytest

from tests.warehouse.report.rows import AR, MTP, row, seen, text_of, viewed, visit
from tests.warehouse.report.started import placebo, speed_pair
from warehouse.dataset.consolidate.comparable import barred, cells_that_fail_parity
from warehouse.dataset.consolidate.rows import Judged, Result
from warehouse.dataset.tables import ATTEMPTS, BILLED_PHASES
from warehouse.report.answer import caveats
from warehouse.report.cost_section import cost_section
from warehouse.report.display.view import View
from warehouse.report.placebo_section import placebo_section
from warehouse.report.steps.throughput import acceptance_section, baseline_section, speed_section


def test_a_speed_is_claimed_where_the_pair_of_starts_says_faster() -> None:
    text = text_of(seen(AR, MTP, pairs=(speed_pair(MTP), placebo(AR))))
    assert text.startswith("Run mtp K=4: 2.00 × AR at short c=1, if its accuracy holds. 160 tokens/s, 2.00 × AR")  # noqa: RUF001
    assert "(95 % interval 1.96 to 2.04 over 2 starts of it and 2 of AR)" in text


def test_a_pair_that_does_not_say_faster_is_no_claim_whatever_its_row_says() -> None:
    text = text_of(seen(AR, MTP, pairs=(speed_pair(MTP, conclusion="inconclusive"), placebo(AR))))
    assert text.startswith("Stay with AR: nothing else was shown to be faster.")


def test_one_start_each_makes_no_claim_and_says_what_would() -> None:
    single = MTP | {"speedup_lo": None, "speedup_hi": None, "visits": 1}
    single |= {"tok_s_lo": 158.0, "tok_s_hi": 162.0, "interval_scope": "within one start"}
    pair = speed_pair(single, ratio_lo=None, ratio_hi=None, visits=1, baseline_visits=1, conclusion="inconclusive")
    view = seen(AR | {"visits": 1}, single, pairs=(pair,))
    text = text_of(view)
    assert text.startswith("No claim: one start each. mtp K=4 ran at 160 tokens/s, 2.00 × AR, within one")  # noqa: RUF001
    assert "run it bracketed or mirrored" in text and "Run mtp" not in text
    assert "within one start" in speed_section(view)
    assert "No speed on this page is a claim." in (placebo_section(view) or "")


def test_a_placebo_that_reads_as_a_difference_takes_every_claim_away_and_is_loud() -> None:
    failed = placebo(AR, ratio=1.08, ratio_lo=1.05, ratio_hi=1.11, ratio_p_holm=0.004, conclusion="differs")
    view = seen(AR, MTP, pairs=(speed_pair(MTP), failed))
    assert text_of(view).startswith("No claim: AR against AR reads as a difference in this run.")
    shown = placebo_section(view) or ""
    assert "<b>AR against AR reads as a difference: short c=1 in run r1.</b>" in shown
    assert "The speed claims of this run are withheld." in shown and "differs: it must not" in shown


def test_a_pair_withheld_for_its_placebo_is_no_claim_though_the_placebo_is_not_on_the_page() -> None:
    withheld = speed_pair(MTP, conclusion="inconclusive", reasons=["placebo_failed"])
    assert text_of(seen(AR, MTP, pairs=(withheld,))).startswith("No claim: AR against AR reads as a difference")


def test_a_placebo_that_holds_is_shown_as_it_must_be() -> None:
    shown = placebo_section(seen(AR, MTP, pairs=(speed_pair(MTP), placebo(AR)))) or ""
    assert "AR against AR: no difference seen under any condition." in shown
    assert "0.980 to 1.027" in shown and "no difference seen</span>" in shown


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


def test_ar_of_another_gpu_does_not_remove_this_ones() -> None:
    elsewhere = AR | {"run_id": "r2", "gpu": "cpu", "tok_s": 9.0, "measured_at": "2026-11-23T10:00:00+00:00"}
    view = viewed([AR, MTP, elsewhere], [speed_pair(MTP), placebo(AR)])
    assert {(each["gpu"], each["tok_s"]) for each in view.rates} == {("h100", 80.0), ("h100", 160.0), ("cpu", 9.0)}
    assert view.older_rows == 0 and len(view.pairs) == 2


def test_ar_measured_again_does_not_remove_the_one_that_a_speedup_rests_on() -> None:
    again = AR | {"run_id": "r2", "tok_s": 81.0, "measured_at": "2026-11-23T10:00:00+00:00"}
    view = viewed([AR, MTP, again], [speed_pair(MTP)])
    assert sorted(each["tok_s"] for each in view.rates) == [80.0, 81.0, 160.0]
    newer = [again, MTP | {"run_id": "r2", "measured_at": again["measured_at"]}]
    assert viewed([AR, MTP, *newer], []).older_rows == 2, "once the technique was measured again too, both are old"


@pytest.mark.parametrize(
    ("columns", "words", "sign", "legend"),
    [
        ({"weights": "dummy"}, "dummy weights", "†", "† dummy weights"),
        ({"acceptance_source": "replayed:anchors"}, "acceptance replayed from anchors", "‡",
         "‡ acceptance replayed from anchors"),
        ({"weights": "dummy", "acceptance_source": "replayed:anchors"},
         "dummy weights, acceptance replayed from anchors", "†‡",
         "† dummy weights, ‡ acceptance replayed from anchors"),
        ({"weights": "dummy", "made_up": "weights=dummy, routing=random"}, "dummy weights, experts drawn", "†¶",
         "† dummy weights, ¶ experts drawn"),
    ],
)  # fmt: skip
def test_what_was_not_really_run_is_said_wherever_its_figure_is(
    columns: dict[str, str], words: str, sign: str, legend: str
) -> None:
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


def test_a_prompt_that_is_not_as_long_as_its_condition_says_is_told_beside_it() -> None:
    sent = speed_section(seen(AR, MTP | {"prompt_tokens": 95.0}))
    assert "sent 95 tokens, not 64" in sent
    assert "tokens, not" not in speed_section(seen(AR, MTP | {"prompt_tokens": 64.4}))


def test_bandwidth_is_told_as_the_least_that_was_needed() -> None:
    """Of a mixture of experts it counts those of one token, however many tokens a step works on."""
    shown = speed_section(seen(AR, MTP | {"mbu": 0.114})) or ""
    assert "MBU ≥</th>" in shown and "11%</td>" in shown
    tiny = speed_section(seen(AR, MTP | {"mbu": 0.00114})) or ""
    assert "0.11%</td>" in tiny and ">0%</td>" not in tiny


def test_lookup_is_held_against_tokens_per_step_not_against_its_acceptance_length() -> None:
    lookup = row("ngram", 90.0, speedup=1.04, k=4, acceptance_length=3.5, tokens_per_step=1.05)
    shown = acceptance_section(seen(AR, lookup))
    assert "1.04 × AR, 1.05 tokens a step" in shown  # noqa: RUF001
    assert "3.50</td>" in shown and "1.05</td>" in shown


def test_noise_and_the_repeats_that_are_worth_their_cost_stand_below_the_placebo() -> None:
    tried = dict.fromkeys(ATTEMPTS.column_names()) | {"run_id": "r1", "cell_key": "ar", "wall_s": 9000.0}
    tries = [
        tried | {"attempt": 1, "outcome": "completed", "load_s": 200.0},
        tried | {"attempt": 2, "outcome": "completed"},
        tried | {"attempt": 3, "outcome": "failed", "load_s": 700.0},
    ]
    visits = [visit(1), visit(2), visit(3, complete=False)]
    view = View([AR | {"gpu_s": 60.0}], [placebo(AR)], tries, 0, visits)
    shown = placebo_section(view) or ""
    assert "1.0%" in shown and "2.0%" in shown and "−0.40 %" in shown  # noqa: RUF001
    assert "1 row of visits.parquet was cut short" in shown
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


def test_controls_are_shown_beside_ar_s_own_rows_where_those_are_of_another_model() -> None:
    control = {"role": "control", "precision": "bf16", "cell_key": "mtp"}
    others = visit(1, **control, model="other", tok_s=268.0)
    own = visit(1, **control, model="m", tok_s=83.0)
    shown = baseline_section(seen(AR, MTP, visits=(others, own))) or ""
    assert '<td class="n">80.0</td>' in shown and '<td class="n">268</td>' in shown
    assert "83.0" not in shown, "AR's own rows speak for their model"


def test_signs_of_the_cells_that_controls_stand_beside_are_explained() -> None:
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
