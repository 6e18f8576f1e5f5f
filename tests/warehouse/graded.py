"""Evaluation steps with made-up answers, written through the public ledger as a node would write them."""

from collections.abc import Collection, Sequence
from itertools import product
from typing import Any

from configs.schema import PlannedCell
from configs.steps.eval import EvalStep
from tests.warehouse.synthetic import FINE, DemoRun, demo_plan
from warehouse.ledger.steps.evaluation import EVAL_SAMPLES, EVAL_SCORES
from warehouse.ledger.store import Store
from warehouse.ledger.tables import Row

GPQA = EvalStep(step="eval-gpqa", dataset="twin")
IFEVAL = EvalStep(step="eval-ifeval", dataset="twin")

WRONG_READING = {"strict": None, "flexible": "B", "first": "D", "framework_answer": "B", "framework_correct": False}
"""What the seed's readers made of a right answer that names other options on its way."""


def answer(index: int, *, right: bool, sample: int = 0, **columns: Any) -> dict[str, Any]:
    """One graded answer; all readers agree unless `columns` say otherwise."""
    letter = "A" if right else "B"
    return {
        "suite": "eval-gpqa", "framework": "lm-eval", "item_id": f"item-{index:04d}", "sample": sample,
        "category": "physics", "prompt_hash": f"prompt-{index}", "request_hash": f"request-{index}-{sample}",
        "occurrence": 0, "gold": "A", "last_in_body": letter, "strict": letter, "flexible": letter, "first": letter,
        "framework_answer": letter, "framework_correct": right, "correct": right, "details": None, "truncated": False,
        "blank": False, "completion_tokens": 900, "extractor_version": 1,
    } | columns  # fmt: skip


def answers(n: int, right: Collection[int], samples: int = 1, **columns: Any) -> list[dict[str, Any]]:
    """Answers to n items, all samples of an item alike."""
    places = product(range(n), range(samples))
    return [answer(index, right=index in right, sample=sample, **columns) for index, sample in places]


def checked(n: int, right: Collection[int]) -> list[dict[str, Any]]:
    """Answers that a program checks: nothing has a letter."""
    none = dict.fromkeys(("gold", "last_in_body", "strict", "flexible", "first", "framework_answer"))
    return answers(n, right, suite="eval-ifeval", **none)


def score(metric: str, value: float, n: int, **columns: Any) -> dict[str, Any]:
    """A figure that the framework reported itself."""
    return {
        "suite": "eval-gpqa", "framework": "lm-eval", "framework_version": "0.4.13", "dataset_revision": "abc123",
        "source": "framework", "extractor": None, "metric": metric, "value": value, "stderr": 0.03, "n": n,
        "samples": 1,
    } | columns  # fmt: skip


class Graded(DemoRun):
    """A run of the demo's cells that also have these evaluations, of which a test answers what it needs."""

    def __init__(self, store: Store, *specs: EvalStep, run_id: str = "run", cells: Sequence[PlannedCell] = ()) -> None:
        cells, steps = cells or demo_plan().cells, specs or (GPQA,)
        graded = tuple(each.model_copy(update={"steps": (*each.steps, *steps)}) for each in cells)
        super().__init__(store, run_id, cells=graded)

    def answered(
        self,
        technique: str,
        k: int | None,
        given: Sequence[Row],
        *reported: Row,
        step: str = "eval-gpqa",
        verdict: tuple[str, list[str], list[str]] = FINE,
        **provenance: Any,
    ) -> None:
        """One committed evaluation of one cell."""
        writer = self.step(step, technique, k).write(EVAL_SAMPLES, given).write(EVAL_SCORES, reported)
        writer.provenance(**provenance).judge((None, None, *verdict)).commit(*verdict[:2], wall_s=90.0)
