"""How far the page's first sentence reaches: as what was measured of accuracy, K and other loads, and whose AR."""

from typing import Any

import pytest

from tests.warehouse.report.pages import AR, MTP, placebo, row, seen, speed_pair, text_of, viewed
from warehouse.dataset.tables import K_CURVES, PAIRS, RECOMMENDATIONS
from warehouse.report.answer import answers
from warehouse.report.display.claims import control_of, doubts
from warehouse.report.display.figures import Row
from warehouse.report.placebo_section import placebo_section
from warehouse.report.steps.throughput import speed_section
from warehouse.report.trust_sections import provenance_section

PAIR, HELD = speed_pair(MTP), placebo(AR)


def scored(conclusion: str, step: str = "eval-gpqa", cell: str = "mtp") -> Row:
    known = {
        "run_id": "r1", "cell_key": cell, "kind": "accuracy", "step": step, "conclusion": conclusion, "delta": 0.0,
        "bound_lo": -0.01, "margin": 0.05, "value": 0.77, "baseline_value": 0.77, "n": 198, "mcnemar_p": 1.0,
        "wording": f"{conclusion}, in words",
    }  # fmt: skip
    return dict.fromkeys(PAIRS.column_names()) | known


@pytest.mark.parametrize(
    "conclusions", [[], ["inconclusive"], ["non-inferior", "inconclusive"], ["non-inferior"]], ids=" and ".join
)
def test_a_technique_is_recommended_without_reserve_only_where_its_accuracy_is_carried(conclusions: list[str]) -> None:
    pairs = [scored(each, step) for each, step in zip(conclusions, ("eval-gpqa", "eval-ifeval"), strict=False)]
    reserve = "." if conclusions == ["non-inferior"] else ", if its accuracy holds."
    text = text_of(seen(AR, MTP, pairs=(PAIR, HELD, *pairs)))
    assert text.startswith(f"Run mtp K=4: 2.00 × AR at short c=1{reserve}")  # noqa: RUF001


def test_the_headline_is_one_that_the_data_can_give_and_carried_before_faster() -> None:
    other = {"model": "a-model", "cell_key": "other"}
    view = seen(AR, MTP, AR | other, MTP | other | {"verdict": "suspect", "speedup": None}, pairs=(PAIR, HELD))
    assert [(each.about, each.verdict[:10]) for each in answers(view)] == [
        ("m, bf16, on h100", "Run mtp K="),
        ("a-model, bf16, on h100", "No speedup"),
    ]
    faster = row("dflash", 240.0, k=7, speedup=3.0, speedup_lo=2.9, speedup_hi=3.1)
    text = text_of(seen(AR, MTP, faster, pairs=(PAIR, speed_pair(faster), HELD, scored("non-inferior"))))
    assert text.startswith("Run mtp K=4: 2.00 × AR at short c=1.")  # noqa: RUF001
    assert "not shown to keep it, hence not recommended: dflash K=7" in text


def test_answers_that_end_by_themselves_are_told_from_those_of_a_fixed_length() -> None:
    natural = {"mode": "natural"}
    base, slow = AR | natural, MTP | natural | {"tok_s": 60.0, "speedup": 0.81}
    view = seen(AR, MTP, base, slow, pairs=(PAIR, HELD, speed_pair(slow, conclusion="slower"), placebo(base)))
    assert "slower under others: 0.81 × AR at short c=1 (natural)" in text_of(view)  # noqa: RUF001
    for shown in (speed_section(view), placebo_section(view)):
        assert "short c=1 (natural)" in (shown or "")


def test_loads_and_other_steps_under_which_it_was_not_faster_are_told_with_what_it_costs_there() -> None:
    long = {"condition": "8k c=1", "context_tokens": 8000}
    base, slow = AR | long, MTP | long | {"tok_s": 60.0, "speedup": 0.81}
    pairs = (PAIR, HELD, speed_pair(slow, conclusion="slower"), placebo(base))
    text = text_of(seen(AR, MTP, base, slow, pairs=pairs))
    assert "Shown to be faster under 1 of its 2 loads, and slower under others: 0.81 × AR at 8k c=1." in text  # noqa: RUF001
    unclear = MTP | {"condition": "short c=4", "concurrency": 4}
    pairs = (PAIR, HELD, speed_pair(unclear, conclusion="inconclusive"))
    assert "under 1 of its 2 loads, not at short c=4." in text_of(seen(AR, MTP, unclear, pairs=pairs))
    assert "of its" not in text_of(seen(AR, MTP, pairs=(PAIR, HELD))), "one load: the verdict names it"
    suite = {"step": "load", "mode": "natural", "condition": "load c=8", "concurrency": 8}
    base, slow = AR | suite, MTP | suite | {"tok_s": 60.0, "speedup": 0.81}
    open_one = slow | {"condition": "load c=8, coding", "speedup": 0.9}
    pairs = (PAIR, HELD, speed_pair(slow, conclusion="slower"), placebo(base))
    text = text_of(seen(AR, MTP, base, slow, open_one, pairs=pairs))
    assert "Shown to be faster under 0 of 2 conditions of other steps, not at load c=8, coding, and slower" in text
    assert "slower under others: 0.81 × AR at load c=8." in text  # noqa: RUF001
    assert "of its" not in text


def curve(*ks: int) -> list[Row]:
    named = {
        "run_id": "r1", "model": "m", "precision": "bf16", "technique": "mtp", "engine": "e", "gpu": "h100",
        "step": "throughput", "condition": "short c=1", "mode": "fixed", "tok_s": 100.0,
    }  # fmt: skip
    keys = {0: "ar", 4: "mtp"}
    return [dict.fromkeys(K_CURVES.column_names()) | named | {"k": k, "cell_key": keys.get(k, f"k{k}")} for k in ks]


def recommended(**columns: Any) -> Row:
    names = RECOMMENDATIONS.column_names()
    return dict.fromkeys(names) | {name: value for name, value in curve(0)[0].items() if name in names} | columns


SMALLER = MTP | {"cell_key": "k2", "k": 2, "tok_s": 156.0, "speedup": 1.95}


def test_the_k_that_is_run_is_the_one_that_the_rule_recommends() -> None:
    pairs = (PAIR, speed_pair(SMALLER), HELD)
    ruled = recommended(k=2, wording="K=2: within noise of K=4, the fastest: 0.98 x [0.95, 1.01]")
    text = text_of(seen(AR, MTP, SMALLER, pairs=pairs, k_curves=curve(0, 2, 4), recommendations=[ruled]))
    assert text.startswith("Run mtp K=2: 1.95 × AR at short c=1")  # noqa: RUF001
    assert "Which K: K=2: within noise of K=4, the fastest" in text and "hence not recommended: mtp K=4" in text
    # so is one that another run measured, where leases were merged into one curve
    other = SMALLER | {"run_id": "r0"}
    points = [each | {"measured_in": "r0" if each["k"] == 2 else "r1"} for each in curve(0, 2, 4)]
    pairs = (PAIR, speed_pair(other), HELD, placebo(AR | {"run_id": "r0"}))
    text = text_of(seen(AR, MTP, other, pairs=pairs, k_curves=points, recommendations=[ruled]))
    assert text.startswith("Run mtp K=2: 1.95 × AR at short c=1")  # noqa: RUF001


SMALL = MTP | {"cell_key": "k2", "k": 2, "tok_s": 80.8, "speedup": 1.01}
GAIN = speed_pair(SMALL, ratio_lo=1.005, ratio_hi=1.015, conclusion="faster")
AR_RULED = "AR: within noise of K=2, the fastest: 0.99 x [0.98, 0.99]"


def test_where_the_rule_takes_ar_ar_stays_and_the_page_says_why() -> None:
    slow = MTP | {"tok_s": 76.0, "speedup": 0.95}
    pairs = (GAIN, speed_pair(slow, conclusion="slower"), HELD, scored("non-inferior", cell="k2"))
    ruled = recommended(k=0, wording=AR_RULED, excluded=["K=8: parity_failed"])
    text = text_of(seen(AR, SMALL, slow, pairs=pairs, k_curves=curve(0, 2, 4), recommendations=[ruled]))
    said = "Stay with AR: what is faster is passed over by the rule for K. The best of 2 others was mtp K=2"
    assert text.startswith(said)
    assert f"Which K: {AR_RULED}. Left out: K=8: parity_failed." in text and "Run" not in text


def test_what_the_rule_passes_over_is_told_apart_from_what_loses_accuracy() -> None:
    lossy = row("dflash", 240.0, k=7, speedup=3.0)
    pairs = (GAIN, speed_pair(lossy), HELD, scored("worse", cell="dflash"))
    ruled = recommended(k=0, wording=AR_RULED)
    view = seen(AR, SMALL, lossy, pairs=pairs, k_curves=curve(0, 2, 4), recommendations=[ruled])
    said = "Stay with AR: what is faster loses accuracy, failed in it, or is passed over by the rule for K."
    assert text_of(view).startswith(f"{said} The best of 2 others was dflash K=7")
    assert f"Which K: {AR_RULED}." in text_of(view)
    view = seen(AR, SMALL, lossy, pairs=pairs[:3], k_curves=curve(0, 2, 4), recommendations=[ruled])
    assert text_of(view).startswith("Run dflash K=7: 3.00 × AR"), "the rule of one curve says nothing of another"  # noqa: RUF001


@pytest.mark.parametrize(
    ("columns", "pair", "scores", "why"),
    [
        ({}, {}, (scored("worse", cell="k2"),), "it loses accuracy, or failed in it"),
        ({}, {}, (scored("non-inferior"),), "its accuracy is not shown to hold"),
        ({}, {"conclusion": "inconclusive"}, (), "it is not surely faster than AR"),
        ({}, {"ratio_lo": None, "ratio_hi": None}, (), "no interval"),
        ({"verdict": "suspect", "reasons": ["unsteady"]}, {}, (), "suspect: unsteady"),
    ],
    ids=["worse", "not carried", "not faster", "no interval", "flagged"],
)
def test_the_answer_says_why_the_rules_k_is_not_run(columns: Row, pair: Row, scores: tuple[Row, ...], why: str) -> None:
    smaller = SMALLER | columns
    pairs = (PAIR, speed_pair(smaller, **pair), HELD, *scores)
    ruled = recommended(k=2, wording="K=2: within noise of K=4")
    text = text_of(seen(AR, MTP, smaller, pairs=pairs, k_curves=curve(0, 2, 4), recommendations=[ruled]))
    assert text.startswith("Run mtp K=4: 2.00 × AR")  # noqa: RUF001
    assert f"Which K: K=2: within noise of K=4. K=2 is not run: {why}." in text


def test_where_no_k_can_be_told_from_the_next_the_answer_says_so() -> None:
    noisy = recommended(k=None, wording="no recommendation: too noisy: K=2 is within noise of K=4")
    view = seen(AR, MTP, pairs=(PAIR, HELD), k_curves=curve(0, 2, 4), recommendations=[noisy])
    assert "Which K: no recommendation: too noisy: K=2 is within noise of K=4." in text_of(view)
    single = seen(AR, MTP, pairs=(PAIR, HELD), k_curves=curve(0, 4), recommendations=[recommended(k=4, wording="K=4")])
    assert "Which K" not in text_of(single), "of a single K there is nothing to choose"


def test_loads_of_one_name_are_told_apart_by_what_was_sent_and_bars_of_several_runs_say_that_they_are() -> None:
    longer = {"run_id": "r2", "tok_s": 70.0, "context_tokens": 320, "output_tokens": 512}
    rows = [*(row | {"output_tokens": 512} for row in (AR, MTP)), *(row | longer for row in (AR, MTP))]
    view = seen(*rows, pairs=(PAIR, HELD))
    assert "160 tokens/s (64 tokens in, 512 out)" in text_of(view)
    shown = speed_section(view) or ""
    assert "64 tokens in, 512 out." in shown and "320 tokens in, 512 out." in shown
    conditions = provenance_section(view)
    assert ">64<" in conditions and ">320<" in conditions
    later = row("dflash", 120.0, run_id="r2", k=7, speedup=1.5)
    assert "Of 2 runs: compare speedups, not bars." in (speed_section(seen(AR, MTP, later, pairs=(PAIR, HELD))) or "")
    assert "compare speedups" not in (speed_section(seen(AR, MTP, pairs=(PAIR, HELD))) or "")
    elsewhere = MTP | {"machine": "host/other card"}
    assert "Of 2 machines: compare speedups" in (speed_section(seen(AR, elsewhere, pairs=(PAIR, HELD))) or "")


OTHER = {"model": "diffuser", "compared_as": "m"}
DIFFUSION = row("diffusion", 240.0, speedup=3.0, speedup_lo=2.94, speedup_hi=3.06, **OTHER)
SCORED = {"step": "eval-gpqa", "condition": None, "mode": None, "metric": "accuracy", "extractor": "last-letter"}


def test_the_page_says_whose_ar_a_speedup_is_over_and_that_one_stays() -> None:
    view = viewed([AR, DIFFUSION], [speed_pair(DIFFUSION, compared_as="m"), placebo(AR)])
    text = text_of(view)
    assert text.startswith("Run diffusion: 3.00 × AR of m at short c=1") and "240 tokens/s, 3.00 × AR of m (95" in text  # noqa: RUF001
    assert "beside AR of m</small>" in speed_section(view)
    again = AR | {"run_id": "r2", "tok_s": 81.0, "measured_at": "2026-11-23T10:00:00+00:00"}
    view = viewed([AR, DIFFUSION, again], [speed_pair(DIFFUSION, compared_as="m")])
    assert sorted(each["tok_s"] for each in view.rates) == [80.0, 81.0, 240.0]


def test_another_models_ar_is_the_control_of_parity_and_evaluations_and_a_trusted_one() -> None:
    parity = {"step": "parity", "condition": None, "mode": None, "parity_n": 12, "parity_equal": 12}
    control, ours = row("ar", **parity), row("diffusion", **parity, **OTHER)
    scored, unscored = row("ar", **SCORED, score=0.7, n=198), row("diffusion", **SCORED, score=0.6, n=198, **OTHER)
    view = seen(AR, DIFFUSION, control, ours, scored, unscored)
    assert control_of(view, ours) == control
    [doubt] = doubts(view, DIFFUSION)
    assert doubt.why == "not the same questions, or read otherwise"
    rejected = DIFFUSION | {"speedup": None, "verdict": "rejected", "reasons": ["short_output"]}
    text = text_of(seen(AR, rejected))
    assert text.startswith("No speedup can be stated. AR ran at 80.0 tokens/s.") and "no trusted AR row" not in text
