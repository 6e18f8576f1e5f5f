"""What the page says about accuracy, of several evaluations at once."""

from __future__ import annotations

import pytest

from tests.warehouse.graded import GPQA, IFEVAL, WRONG_READING, Graded, answer, answers, checked, score
from tests.warehouse.read_page import page_of
from tests.warehouse.report.started import page_with_starts
from tests.warehouse.synthetic import write_demo_run
from warehouse.ledger.steps import PARITY_OUTPUTS
from warehouse.ledger.store import Store


def graded_demo(store: Store) -> Graded:
    """The demo with two evaluations more, in which MTP K=4 is as good as AR, DFlash worse, and K=2 rambles."""
    run = Graded(store, GPQA, IFEVAL, run_id="demo-1")
    write_demo_run(store, "demo-1", plan=run.plan)
    for technique, k, lost in (("ar", None, 0), ("mtp", 2, 0), ("mtp", 4, 2), ("dflash", 7, 40)):
        given = [
            answer(index, right=lost <= index < 150, **(WRONG_READING if index % 3 == 0 and index >= lost else {}))
            for index in range(198)
        ]
        if k == 2:
            for row in given[150:165]:
                row["truncated"] = True
        reported = score("exact_match,flexible-extract", 0.51, 198)
        run.answered(technique, k, given, reported)
        run.answered(
            technique, k, checked(192, range(150)), score("final_acc", 0.8, 192, suite="eval-ifeval"),
            step="eval-ifeval",
        )  # fmt: skip
    return run


@pytest.mark.slow(5)
def test_all_evaluations_are_one_section_with_verdicts_in_words(local: Store) -> None:
    graded_demo(local)
    page = page_of(local)
    text = page.text
    assert sum(facts.get("id") == "accuracy" for _, facts in page.elements) == 1
    for drawing in ("Scores eval-gpqa: tiny-gemma4.", "Scores eval-ifeval: tiny-gemma4.", "Scores eval-tiny:"):
        assert drawing in text
    assert "worse by 20.2 points" in text and "no: worse" in text
    assert "equal within ±5.0 points (n=198, one-sided 95 %)" in text
    assert "lm-eval 0.4.13" in text


@pytest.mark.slow(6)
def test_every_readers_score_stands_beside_the_one_that_counts(local: Store) -> None:
    graded_demo(local)
    text = page_of(local).text
    table = text[text.index("What other readers would have published") :]
    counts, strict, flexible, first, framework = "0.758", "0.505", "0.505", "0.505", "0.505"
    told = f"AR bf16 eval-gpqa {counts} {strict} {flexible} {first} {framework} exact_match,flexible-extract 0.510"
    assert told in table
    assert "final_acc 0.800" in table


@pytest.mark.slow(11)
def test_the_answer_takes_the_least_favourable_evaluation(local: Store) -> None:
    graded_demo(local)
    text = page_with_starts(local).text
    told = "on the same 48 questions of eval-tiny, the least favourable of 3 evaluations (+0.000): cannot tell"
    assert told in text


@pytest.mark.slow(5)
def test_a_technique_that_rambles_is_flagged_and_not_called_lossless(local: Store) -> None:
    graded_demo(local)
    text = page_of(local).text
    assert "truncation_differs" in text
    assert "7.6% of the answers were cut off, of AR's 0.0%" in text


@pytest.mark.parametrize(("cut_off", "claimed"), [(0, True), (12, False)])
def test_lossless_is_not_said_of_one_that_rambles(local: Store, cut_off: int, claimed: bool) -> None:
    run = Graded(local)
    for technique, k in (("ar", None), ("mtp", 4)):
        parity = run.step("parity", technique, k)
        for number in range(2):
            outputs = [{"prompt_id": f"p-{index}", "pass": number, "token_ids": [index, 7]} for index in range(12)]
            parity.write(PARITY_OUTPUTS, outputs)
        parity.commit()
        given = answers(198, range(150))
        for row in given[150 : 150 + cut_off if k else 150]:
            row["truncated"] = True
        run.answered(technique, k, given)
    assert ("yes: lossless" in page_of(local).text) is claimed


def test_two_cells_of_other_serving_are_told_beside_their_pair(local: Store) -> None:
    cells = []
    for planned in Graded(local, run_id="plan").plan.cells:
        longer = planned.cell.serving.model_copy(update={"max_model_len": 4096})
        serving = planned.cell.serving if planned.cell.technique.is_baseline else longer
        cells.append(planned.model_copy(update={"cell": planned.cell.model_copy(update={"serving": serving})}))
    run = Graded(local, IFEVAL, run_id="other", cells=cells)
    run.answered("ar", None, checked(192, range(150)), step="eval-ifeval")
    run.answered("mtp", 4, checked(192, range(150)), step="eval-ifeval")
    text = page_of(local).text
    assert "served differently" in text and "max_model_len" in text
