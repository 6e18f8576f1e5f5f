"""A run with committed evaluations, graded by readers of a version 0 that took the first option that they saw."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from configs.schema import PlannedCell
from configs.steps.eval import EvalStep
from configs.steps.eval_tiny import EvalTinyStep
from tasks.evals.extractors import read
from tasks.evals.grading import Paired, sample_row, score_rows
from tasks.frameworks.job import Result, Score
from tests.tasks.evals.graded import exchange, graded, item
from tests.warehouse.synthetic import StepWriter, demo_plan
from tests.warehouse.synthetic import item as tiny_item
from warehouse.ledger.commits import Ledger
from warehouse.ledger.steps import EVAL_ITEMS, EVAL_SAMPLES, EVAL_SCORES, EXCHANGES

GPQA = EvalStep(step="eval-gpqa", items=8)
IFEVAL = EvalStep(step="eval-ifeval", items=2)
TINY = EvalTinyStep(step="eval-tiny", items=5)


def write_graded_run(ledger: Ledger, version: int = 0) -> PlannedCell:
    """One cell with three evaluations, the first two graded by readers of `version`: 0, or today's."""
    plan = demo_plan()
    planned = plan.cells[0].model_copy(update={"steps": (GPQA, IFEVAL, TINY)})
    ledger.write_plan(plan.model_copy(update={"cells": (planned,)}))
    key = planned.cell.cell_key
    _gpqa(StepWriter(ledger, key, "eval-gpqa"), version)
    _ifeval(StepWriter(ledger, key, "eval-ifeval"), version)
    tiny = StepWriter(ledger, key, "eval-tiny")
    tiny.write(EVAL_ITEMS, [tiny_item(index, right=True) for index in range(5)])
    tiny.judge((None, None, "ok", [], []))
    tiny.commit()
    return planned


def gpqa_answers() -> list[Paired]:
    """Eight answers: six right, two of those named first; two wrong."""
    found = []
    for number in range(8):
        asked = item(number, "C")
        first = "(C)" if number < 2 else "(A)"
        body = f"{first} comes to mind.\n\n**Answer: ({'C' if number < 6 else 'B'})**"
        said = exchange(asked, body, "easy", completion_tokens=100 + number)
        found.append(Paired(asked, graded(asked, body, extracted="[invalid]"), said))
    return found


def _gpqa(step: StepWriter, version: int) -> None:
    answers = gpqa_answers()
    rows = [sample_row(each, GPQA, 0) for each in answers]
    for row, each in zip(rows, answers, strict=True) if version == 0 else ():
        first = read("ABCD", "", str(each.exchange["body"])).first
        row |= {"last_in_body": first, "correct": first == "C", "extractor_version": 0}
    _write(step, GPQA, answers, rows)
    verdict, reasons, sentences = "suspect", ["engine_preemption"], ["the engine preempted 3 requests"]
    if version == 0:
        guessed = "2 of 8 right: guessing (chance 0.25) does as well with p = 0.63"
        verdict, reasons, sentences = "rejected", ["at_chance", *reasons], [guessed, *sentences]
    step.judge((None, None, verdict, reasons, sentences))
    step.provenance()
    step.commit(verdict, reasons)


def _ifeval(step: StepWriter, version: int) -> None:
    answers = []
    for number, followed in enumerate((True, False)):
        asked = item(number, "", choices=())
        details = {"prompt_level_strict": followed, "prompt_level_loose": True}
        answers.append(Paired(asked, graded(asked, "Well.", details=details), exchange(asked, "Well.", "easy")))
    _write(step, IFEVAL, answers, [sample_row(each, IFEVAL, 0) | {"extractor_version": version} for each in answers])
    step.judge((None, None, "ok", [], []))
    step.commit()


def _write(step: StepWriter, spec: EvalStep, answers: Sequence[Paired], rows: Sequence[dict[str, Any]]) -> None:
    half = len(answers) // 2
    for some in (answers[:half], answers[half:]):
        step.write(EXCHANGES, [{**each.exchange, "suite": spec.step} for each in some])
    step.write(EVAL_SAMPLES, rows)
    reported = Score(spec.evaluation.metric, 0.0, 0.0, len(rows))
    step.write(EVAL_SCORES, score_rows(rows, [Result("lm-eval", "0.4.13", scores=(reported,))], spec, "633f5ee5"))
