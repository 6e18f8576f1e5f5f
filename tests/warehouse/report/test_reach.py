"""How far claims of the page reach: as what was measured of accuracy, of K and of other loads, and over whose AR."""

from typing import Any

import pytest

from configs.steps.eval import EvalStep
from configs.steps.needle import NeedleStep, condition_name
from tests.warehouse.report.pages import (
    AR,
    MTP,
    page_of,
    page_with_starts,
    placebo,
    row,
    seen,
    speed_pair,
    text_of,
    viewed,
)
from tests.warehouse.runs import GPQA, IFEVAL, WRONG_READING, Graded, answer, answers, checked, score, served
from tests.warehouse.synthetic import FINE, demo_plan, write_demo_run
from warehouse.dataset.tables import K_CURVES, PAIRS, RECOMMENDATIONS
from warehouse.ledger.steps import NEEDLES
from warehouse.ledger.store import Store
from warehouse.report.answer import answers as verdicts
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
    assert [(each.about, each.verdict[:10]) for each in verdicts(view)] == [
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


def test_what_the_rule_passes_over_is_told_apart_from_what_loses_accuracy() -> None:
    slow = MTP | {"tok_s": 76.0, "speedup": 0.95}
    pairs = (GAIN, speed_pair(slow, conclusion="slower"), HELD, scored("non-inferior", cell="k2"))
    ruled = recommended(k=0, wording=AR_RULED, excluded=["K=8: parity_failed"])
    text = text_of(seen(AR, SMALL, slow, pairs=pairs, k_curves=curve(0, 2, 4), recommendations=[ruled]))
    said = "Stay with AR: what is faster is passed over by the rule for K. The best of 2 others was mtp K=2"
    assert text.startswith(said)
    assert f"Which K: {AR_RULED}. Left out: K=8: parity_failed." in text and "Run" not in text
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


def demo_with(store: Store, *specs: EvalStep) -> Graded:
    """The demo with these evaluations beside its own, for a test to answer."""
    run = Graded(store, *specs, run_id="demo-1")
    write_demo_run(store, "demo-1", plan=run.plan)
    return run


def graded_demo(store: Store) -> Graded:
    """The demo with two evaluations more, in which MTP K=4 is as good as AR, DFlash worse, and K=2 rambles."""
    run = demo_with(store, GPQA, IFEVAL)
    for technique, k, lost in (("ar", None, 0), ("mtp", 2, 0), ("mtp", 4, 2), ("dflash", 7, 40)):
        given = [
            answer(index, right=lost <= index < 150, **(WRONG_READING if index % 3 == 0 and index >= lost else {}))
            for index in range(198)
        ]
        flexible = score("exact_match,flexible-extract", 0.51, 198)
        run.answered(technique, k, cut(given, 15) if k == 2 else given, flexible)
        reported = score("final_acc", 0.8, 192, suite="eval-ifeval")
        run.answered(technique, k, checked(192, range(150)), reported, step="eval-ifeval")
    return run


def cut(given: list[dict[str, Any]], many: int) -> list[dict[str, Any]]:
    """The same answers, so many wrong ones cut off."""
    return [row | {"truncated": 150 <= index < 150 + many} for index, row in enumerate(given)]


@pytest.mark.slow(5)
def test_all_evaluations_are_one_section_with_verdicts_in_words_and_every_readers_score(local: Store) -> None:
    graded_demo(local)
    page = page_of(local)
    text = page.text
    assert sum(facts.get("id") == "accuracy" for _, facts in page.elements) == 1
    for drawing in ("Scores eval-gpqa: tiny-gemma4.", "Scores eval-ifeval: tiny-gemma4.", "Scores eval-tiny:"):
        assert drawing in text
    assert "worse by 20.2 points" in text and "no: worse" in text
    assert "equal within ±5.0 points (n=198, one-sided 95 %)" in text
    assert "lm-eval 0.4.13" in text
    table = text[text.index("What other readers would have published") :]
    counts, strict, flexible, first, framework = "0.758", "0.505", "0.505", "0.505", "0.505"
    told = f"AR bf16 eval-gpqa {counts} {strict} {flexible} {first} {framework} exact_match,flexible-extract 0.510"
    assert told in table and "final_acc 0.800" in table
    assert "truncation_differs" in text and "7.6% of the answers were cut off, of AR's 0.0%" in text, "one that rambles"


@pytest.mark.slow(11)
def test_the_answer_takes_the_least_favourable_evaluation(local: Store) -> None:
    graded_demo(local)
    text = page_with_starts(local).text
    told = "on the same 48 questions of eval-tiny, the least favourable of 3 evaluations (+0.000): cannot tell"
    assert told in text


@pytest.mark.parametrize(("cut_off", "claimed"), [(0, True), (12, False)])
def test_lossless_is_not_said_of_one_that_rambles(local: Store, cut_off: int, claimed: bool) -> None:
    run = Graded(local)
    for technique, k in ARMS:
        run.outputs(technique, k, EQUAL, EQUAL)
        run.answered(technique, k, cut(answers(198, range(150)), cut_off if k else 0))
    assert ("yes: lossless" in page_of(local).text) is claimed


def test_two_cells_of_other_serving_are_told_beside_their_pair(local: Store) -> None:
    cells = [each if each.cell.technique.is_baseline else served(each, 4096) for each in demo_plan().cells]
    run = Graded(local, IFEVAL, cells=cells)
    for technique, k in ARMS:
        run.answered(technique, k, checked(192, range(150)), step="eval-ifeval")
    text = page_of(local).text
    assert "served differently" in text and "max_model_len" in text


ARMS = (("ar", None), ("mtp", 4))
EQUAL = {f"p-{index}": [index, 7] for index in range(12)}  # outputs of a parity step


def judged(run: Graded, technique: str, k: int | None, verdict: str, given: list[dict[str, Any]]) -> None:
    """GPQA of one cell with 80 answers cut off, as the node judged it."""
    rows = [*given[:-80], *(row | {"truncated": True} for row in given[-80:])]
    run.answered(technique, k, rows, verdict=(verdict, ["truncated"], ["80 of 198 answers were cut off"]))


def fine(run: Graded) -> None:
    """Parity with its control, and IFEval, of cells that do well."""
    for technique, k in ARMS:
        run.outputs(technique, k, EQUAL, EQUAL)
        run.answered(technique, k, checked(192, range(150)), step="eval-ifeval")


@pytest.mark.parametrize(
    ("verdict", "right", "claimed"),
    [("rejected", 50, False), ("suspect", 150, False), (None, 0, False), ("ok", 150, True)],
)
def test_a_failed_evaluation_is_not_made_up_for(local: Store, verdict: str | None, right: int, claimed: bool) -> None:
    run = Graded(local, GPQA, IFEVAL)
    fine(run)
    run.answered("ar", None, answers(198, range(150)))
    if verdict == "ok":
        run.answered("mtp", 4, answers(198, range(right)))
    elif verdict is not None:
        judged(run, "mtp", 4, verdict, answers(198, range(right)))
    assert ("yes: lossless" in page_of(local).text) is claimed


def test_a_loss_that_is_proven_in_one_evaluation_is_not_lossless_in_any(local: Store) -> None:
    run = Graded(local, GPQA, IFEVAL)
    fine(run)
    run.answered("ar", None, answers(2000, range(1500)))
    run.answered("mtp", 4, answers(2000, [*range(50, 1500), *range(1500, 1510)]))
    text = page_of(local).text
    assert "yes: lossless" not in text
    assert "worse by 2.0 points (95 % interval" in text and "within ±5.0 points" in text


@pytest.mark.parametrize(("found", "claimed"), [(3, True), (1, False)])
def test_lossless_needs_as_many_needles_as_ar(local: Store, found: int, claimed: bool) -> None:
    spec = NeedleStep(step="needle", context_tokens=(1024,), depths_percent=(50,))
    run = Graded(local, IFEVAL, spec)  # type: ignore[arg-type]
    fine(run)
    place = {"context_tokens": 1024, "depth_percent": 50, "truncated": False, "blank": False}
    for technique, k in ARMS:
        rows = [place | {"seed": seed, "correct": seed < (found if k else 3)} for seed in range(3)]
        run.step("needle", technique, k).write(NEEDLES, rows).judge((condition_name(1024, 50), None, *FINE)).commit()
    assert ("yes: lossless" in page_of(local).text) is claimed


@pytest.mark.slow(14)
def test_a_cell_whose_only_comparison_was_rejected_is_not_recommended(local: Store) -> None:
    run = demo_with(local, GPQA)
    run.answered("ar", None, answers(198, range(150)))
    judged(run, "mtp", 4, "rejected", answers(198, range(50)))
    run.answered("mtp", 2, answers(198, range(150)))
    text = page_with_starts(local).text
    assert "Run mtp K=2" in text
    assert "hence not recommended: mtp K=4" in text


@pytest.mark.slow(6)
def test_a_cell_that_nobody_could_vouch_for_is_only_recommended_with_that_said(local: Store) -> None:
    run = demo_with(local, GPQA)
    run.answered("ar", None, answers(198, range(150)))
    judged(run, "mtp", 4, "suspect", answers(198, range(150)))
    text = page_with_starts(local).text
    assert "Run mtp K=4: 1.91 × AR at short c=1, if its accuracy holds." in text  # noqa: RUF001
    assert "Could not be compared with AR: eval-gpqa (suspect: truncated, truncation_differs)." in text


@pytest.mark.slow(6)
def test_where_every_fast_cell_failed_ar_stays_and_the_page_says_why(local: Store) -> None:
    run = demo_with(local, GPQA)
    run.answered("ar", None, answers(198, range(150)))
    for planned in run.plan.cells:
        cell = planned.cell
        if cell.technique.name != "ar":
            judged(run, cell.technique.name, cell.k, "rejected", answers(198, range(50)))
    text = page_with_starts(local).text
    assert "Stay with AR: what is faster loses accuracy, or failed in it." in text
    assert "eval-gpqa (rejected: truncated" in text


@pytest.mark.slow(4)
def test_a_pair_of_one_that_rambles_says_so_wherever_it_is_read(local: Store) -> None:
    run = demo_with(local, GPQA)
    run.answered("ar", None, answers(198, range(150)))
    run.answered("mtp", 4, cut(answers(198, range(150)), 15))
    text = page_with_starts(local).text
    assert "yes, but cuts off more" in text
    assert "; but it cuts off more answers than AR in eval-gpqa." in text
    assert "keeps its own, which says so" in text
