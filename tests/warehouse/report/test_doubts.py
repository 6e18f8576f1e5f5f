"""What one evaluation that failed, or could not be compared, takes away from a claim."""

from __future__ import annotations

from typing import Any

import pytest

from configs.steps.needle import NeedleStep, condition_name
from tests.warehouse.graded import GPQA, IFEVAL, Graded, answers, checked
from tests.warehouse.read_page import page_of
from tests.warehouse.report.started import page_with_starts
from tests.warehouse.synthetic import write_demo_run
from warehouse.ledger.steps import EVAL_SAMPLES, NEEDLES, PARITY_OUTPUTS
from warehouse.ledger.store import Store

ARMS = (("ar", None), ("mtp", 4))


def judged(run: Graded, technique: str, k: int | None, verdict: str, given: list[dict[str, Any]]) -> None:
    """GPQA of one cell with 80 answers cut off, as the node judged it."""
    step = run.step("eval-gpqa", technique, k)
    for row in given[-80:]:
        row["truncated"] = True
    step.write(EVAL_SAMPLES, given)
    step.judge((None, None, verdict, ["truncated"], ["80 of 198 answers were cut off"]))
    step.commit(verdict, ["truncated"])


def fine(run: Graded, *arms: tuple[str, int | None]) -> None:
    """Parity with its control, and IFEval, of cells that do well."""
    for technique, k in arms:
        parity = run.step("parity", technique, k)
        for number in range(2):
            outputs = [{"prompt_id": f"p-{index}", "pass": number, "token_ids": [index, 7]} for index in range(12)]
            parity.write(PARITY_OUTPUTS, outputs)
        parity.commit()
        run.answered(technique, k, checked(192, range(150)), step="eval-ifeval")


@pytest.mark.parametrize(
    ("verdict", "right", "claimed"),
    [("rejected", 50, False), ("suspect", 150, False), (None, 0, False), ("ok", 150, True)],
)
def test_one_evaluation_that_failed_is_not_made_up_for_by_another(
    local: Store, verdict: str | None, right: int, claimed: bool
) -> None:
    run = Graded(local, GPQA, IFEVAL)
    fine(run, *ARMS)
    run.answered("ar", None, answers(198, range(150)))
    if verdict == "ok":
        run.answered("mtp", 4, answers(198, range(right)))
    elif verdict is not None:
        judged(run, "mtp", 4, verdict, answers(198, range(right)))
    assert ("yes: lossless" in page_of(local).text) is claimed


def test_a_loss_that_is_proven_in_one_evaluation_is_not_lossless_in_any(local: Store) -> None:
    run = Graded(local, GPQA, IFEVAL)
    fine(run, *ARMS)
    run.answered("ar", None, answers(2000, range(1500)))
    run.answered("mtp", 4, answers(2000, [*range(50, 1500), *range(1500, 1510)]))
    text = page_of(local).text
    assert "yes: lossless" not in text
    assert "worse by 2.0 points (95 % interval" in text and "within ±5.0 points" in text


@pytest.mark.parametrize(("found", "claimed"), [(3, True), (1, False)])
def test_lossless_needs_as_many_needles_as_ar(local: Store, found: int, claimed: bool) -> None:
    spec = NeedleStep(step="needle", context_tokens=(1024,), depths_percent=(50,))
    run = Graded(local, IFEVAL, spec)  # type: ignore[arg-type]
    fine(run, *ARMS)
    for technique, k in ARMS:
        step = run.step("needle", technique, k)
        hits = found if k else 3
        step.write(
            NEEDLES,
            [
                {"context_tokens": 1024, "depth_percent": 50, "seed": seed, "correct": seed < hits, "truncated": False,
                 "blank": False}
                for seed in range(3)
            ],
        )  # fmt: skip
        step.judge((condition_name(1024, 50), None, "ok", [], []))
        step.commit()
    assert ("yes: lossless" in page_of(local).text) is claimed


def demo_with_gpqa(store: Store) -> Graded:
    run = Graded(store, GPQA, run_id="demo-1")
    write_demo_run(store, "demo-1", plan=run.plan)
    return run


@pytest.mark.slow(14)
def test_a_cell_whose_only_comparison_was_rejected_is_not_recommended(local: Store) -> None:
    run = demo_with_gpqa(local)
    run.answered("ar", None, answers(198, range(150)))
    judged(run, "mtp", 4, "rejected", answers(198, range(50)))
    run.answered("mtp", 2, answers(198, range(150)))
    text = page_with_starts(local).text
    assert "Run mtp K=2" in text
    assert "hence not recommended: mtp K=4" in text


@pytest.mark.slow(6)
def test_a_cell_that_nobody_could_vouch_for_is_only_recommended_with_that_said(local: Store) -> None:
    run = demo_with_gpqa(local)
    run.answered("ar", None, answers(198, range(150)))
    judged(run, "mtp", 4, "suspect", answers(198, range(150)))
    text = page_with_starts(local).text
    assert "Run mtp K=4: 1.91 × AR at short c=1, if its accuracy holds." in text  # noqa: RUF001
    assert "Could not be compared with AR: eval-gpqa (suspect: truncated, truncation_differs)." in text


@pytest.mark.slow(6)
def test_where_every_fast_cell_failed_ar_stays_and_the_page_says_why(local: Store) -> None:
    run = demo_with_gpqa(local)
    run.answered("ar", None, answers(198, range(150)))
    for planned in run.plan.cells:
        cell = planned.cell
        if cell.technique.name != "ar":
            judged(run, cell.technique.name, cell.k, "rejected", answers(198, range(50)))
    text = page_with_starts(local).text
    assert "Stay with AR: what is faster loses accuracy, or failed in it." in text
    assert "eval-gpqa (rejected: truncated" in text


def test_a_pair_of_one_that_rambles_says_so_wherever_it_is_read(local: Store) -> None:
    run = demo_with_gpqa(local)
    run.answered("ar", None, answers(198, range(150)))
    rambling = answers(198, range(150))
    for row in rambling[150:165]:
        row["truncated"] = True
    run.answered("mtp", 4, rambling)
    text = page_with_starts(local).text
    assert "yes, but cuts off more" in text
    assert "; but it cuts off more answers than AR in eval-gpqa." in text
    assert "keeps its own, which says so" in text
