"""An evaluation ends early only on a comparison that consolidation will make as well."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import pytest

from configs.schema import PlannedCell
from configs.visits import Measurement
from tasks.context import StepContext
from tasks.evals.interim import early_verdict
from tests.warehouse.graded import GPQA, Graded, answers
from warehouse.evals.tables import EVAL_SAMPLES
from warehouse.parts import Row
from warehouse.regrades import Grading, write_regrade
from warehouse.store import Store, open_store

SPEC = GPQA.model_copy(update={"looks": (0.5, 1.0)})  # of the twin's 192 items

WORSE = answers(96, range(40, 96))
"""The first half, of which 40 are lost that AR gets right."""


@pytest.fixture
def local(tmp_path: Path) -> Store:
    return open_store(str(tmp_path / "store"))


def verdict(run: Graded, rows: Sequence[Row], planned: PlannedCell | None = None) -> str | None:
    """What the first look of MTP K=4 says."""
    key = run.key("mtp", 4)
    cell = planned or next(each for each in run.plan.cells if each.cell.cell_key == key)
    unused = cast(Any, None)
    ctx = StepContext(cell, cell.cell, unused, run.ledger, Measurement(SPEC), 1, unused, unused)
    return asyncio.run(early_verdict(ctx, SPEC, 1, rows))


def with_ar(local: Store, **columns: Any) -> Graded:
    run = Graded(local, SPEC)
    run.answered("ar", None, answers(192, range(192), **columns))
    return run


def test_a_clear_loss_ends_an_evaluation_and_an_even_one_goes_on(local: Store) -> None:
    run = with_ar(local)
    said = verdict(run, WORSE)
    assert said is not None and said.startswith("ended early, worse (96 items, look 1 of 2, level 0.00")
    assert verdict(run, answers(96, range(2, 96))) is None


def test_it_goes_on_while_ar_has_not_committed(local: Store) -> None:
    assert verdict(Graded(local, SPEC), WORSE) is None


def test_a_row_of_ar_that_is_not_ok_ends_nothing(local: Store) -> None:
    run = Graded(local, SPEC)
    step = run.step("eval-gpqa", "ar")
    step.write(EVAL_SAMPLES, answers(192, range(192)))
    step.commit("suspect", ["truncated"])
    assert verdict(run, WORSE) is None


@pytest.mark.parametrize("other", [{"prompt_hash": "choices in another order"}, {"sample": 1}])
def test_other_questions_end_nothing(local: Store, other: dict[str, Any]) -> None:
    rows = [*answers(96, range(40, 96))]
    if "sample" in other:
        rows.append(rows[7] | other)
    else:
        rows[7] |= other
    assert verdict(with_ar(local), rows) is None


def test_answers_that_make_its_own_row_suspect_end_nothing(local: Store) -> None:
    rows = [row | {"truncated": index < 12} for index, row in enumerate(WORSE)]
    assert verdict(with_ar(local), rows) is None


def test_other_readers_end_nothing_until_ar_is_graded_again(local: Store) -> None:
    run = with_ar(local, extractor_version=0)
    assert verdict(run, WORSE) is None
    key = run.key("ar")
    commit = run.ledger.read_commit(key, "eval-gpqa")
    assert commit is not None
    identity = {"run_id": "run", "cell_key": key, "step": "eval-gpqa", "attempt": 1, "measured_at": "2026-11-22"}
    now = [identity | row for row in answers(192, range(192))]
    write_regrade(run.ledger, key, "eval-gpqa", 0, Grading({EVAL_SAMPLES: now}, "ok", (), 1), None)
    said = verdict(run, WORSE)
    assert said is not None and "worse" in said


def test_of_several_ar_cells_only_the_one_that_will_be_taken_is_waited_for(local: Store) -> None:
    plain = Graded(local, run_id="plan").plan.cells
    ar = next(each for each in plain if each.cell.technique.is_baseline and each.cell.precision.name == "bf16")
    longer = ar.cell.serving.model_copy(update={"max_model_len": 4096})
    other = ar.model_copy(update={"cell": ar.cell.model_copy(update={"serving": longer})})
    run = Graded(local, SPEC, cells=[other, *plain])
    assert run.key("ar") == other.cell.cell_key != ar.cell.cell_key
    run.answered("ar", None, answers(192, range(192)))
    assert verdict(run, WORSE) is None, "consolidation may still take the AR cell that is served alike"
