"""Runs of the demo's cells in engine starts on machines, and with evaluations, written as a node would write them."""

from collections.abc import Collection, Sequence
from itertools import product
from typing import Any

from configs.schema import PlannedCell
from configs.step import MeasuredStep
from configs.steps.eval import EvalStep
from configs.steps.throughput import Condition
from configs.visits import Design
from tests.warehouse.synthetic import FINE, DemoRun, celled, demo_plan, window
from warehouse.dataset.build import Consolidated
from warehouse.dataset.tables import LOAD, PAIRS, RESULTS_CONSOLIDATED
from warehouse.ledger.clock import Clock
from warehouse.ledger.commits import Ledger
from warehouse.ledger.steps import EVAL_SAMPLES, EVAL_SCORES
from warehouse.ledger.store import Store
from warehouse.ledger.tables import Row
from warehouse.ledger.timed_tables import WINDOWS
from warehouse.report.display.view import View

SHORT = Condition(name="short c=1", context_tokens=64, output_tokens=100)

STEADY = (0.99, 1.0, 1.01)  # rates of three repeats over their visit's


class MinuteByMinute(Clock):
    """A fake clock on which every record is a minute later than the one before."""

    def __init__(self) -> None:
        self.now = 1_795_000_000.0

    def now_s(self) -> float:
        self.now += 60.0
        return self.now


class VisitedRun(DemoRun):
    def __init__(
        self, store: Store, design: Design = "bracketed", run_id: str = "run", cells: Sequence[PlannedCell] = ()
    ) -> None:
        planned = tuple(cells or demo_plan().cells)
        visited = tuple(one.model_copy(update={"visits": design, "control": self._control(design, one, planned)})
                        for one in planned)  # fmt: skip
        super().__init__(store, run_id, MinuteByMinute(), cells=visited)

    @staticmethod
    def _control(design: Design, one: PlannedCell, cells: Sequence[PlannedCell]) -> Any:
        if design != "bracketed" or one.cell.technique.is_baseline:
            return None
        twins = (each.cell for each in cells if each.cell.technique.is_baseline)
        return next(each for each in twins if each.model.name == one.cell.model.compared_as)

    def visit(
        self,
        technique: str,
        k: int | None,
        tok_s: float,
        visit: str = "",
        *,
        machine: str | None = "node-1 card-1",
        verdict: Sequence[Any] = ("ok", [], []),
        rates: Sequence[float] = STEADY,
        condition: Condition = SHORT,
        provenance: Row | None = None,
        **engine: Any,
    ) -> None:
        """One committed visit, named as in the ledger: nothing, `@2`, `@control-1`; counters are per window."""
        step = self.step(f"throughput{visit}", technique, k).provenance(machine=machine, **(provenance or {}))
        step.write(WINDOWS, [window(condition, at, tok_s * rate, **engine) for at, rate in enumerate(rates)])
        step.judge((condition.name, "fixed", *verdict)).commit(verdict[0], verdict[1])

    def bracket(self, technique: str, k: int | None, before: float, tok_s: float, after: float, **columns: Any) -> None:
        """Control, cell, control; engine's counters are the cell's."""
        same = {name: value for name, value in columns.items() if name in ("machine", "provenance", "condition")}
        self.visit(technique, k, before, "@control-1", **same)
        self.visit(technique, k, tok_s, **columns)
        self.visit(technique, k, after, "@control-2", **same)


def served(planned: PlannedCell, max_model_len: int) -> PlannedCell:
    return celled(planned, serving=planned.cell.serving.model_copy(update={"max_model_len": max_model_len}))


AR, MTP = 0, 3  # places of two cells in the demo's plan


def mirrored_pair(store: Store, spec: MeasuredStep) -> tuple[Ledger, str, str]:
    """A run of AR and MTP with this step alone, on the way there and back; its ledger and their keys."""
    ledger, plan = Ledger(store, "r1", MinuteByMinute()), demo_plan()
    mirrored = {"visits": "mirrored", "steps": (spec,)}
    cells = tuple(plan.cells[at].model_copy(update=mirrored) for at in (AR, MTP))
    ledger.write_plan(plan.model_copy(update={"cells": cells}))
    ar, mtp = (planned.cell.cell_key for planned in cells)
    return ledger, ar, mtp


def view_of(built: Consolidated) -> View:
    rows, pairs, load = (
        [dict.fromkeys(table.column_names()) | row for row in found]
        for table, found in ((RESULTS_CONSOLIDATED, built.results), (PAIRS, built.pairs), (LOAD, built.load))
    )
    return View(rows, pairs, [], 0, load=load)


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
        eight_bit: bool = False,
        **provenance: Any,
    ) -> None:
        writer = (
            self.step(step, technique, k, eight_bit=eight_bit).write(EVAL_SAMPLES, given).write(EVAL_SCORES, reported)
        )
        writer.provenance(**provenance).judge((None, None, *verdict)).commit(*verdict[:2], wall_s=90.0)
