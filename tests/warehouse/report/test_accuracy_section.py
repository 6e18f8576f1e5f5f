"""What the page says about accuracy, and what an evaluation that failed or could not be compared takes away."""

from typing import Any

import pytest

from configs.steps.eval import EvalStep
from configs.steps.needle import NeedleStep, condition_name
from tests.warehouse.report.pages import page_of, page_with_starts
from tests.warehouse.runs import GPQA, IFEVAL, WRONG_READING, Graded, answer, answers, checked, score, served
from tests.warehouse.synthetic import FINE, demo_plan, write_demo_run
from warehouse.ledger.steps.needle import NEEDLES
from warehouse.ledger.store import Store


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


def test_a_pair_of_one_that_rambles_says_so_wherever_it_is_read(local: Store) -> None:
    run = demo_with(local, GPQA)
    run.answered("ar", None, answers(198, range(150)))
    run.answered("mtp", 4, cut(answers(198, range(150)), 15))
    text = page_with_starts(local).text
    assert "yes, but cuts off more" in text
    assert "; but it cuts off more answers than AR in eval-gpqa." in text
    assert "keeps its own, which says so" in text
