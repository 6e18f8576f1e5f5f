"""GPQA through lm-eval over the cells of one run: every cell is asked itself, the same questions in the same words."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from configs.evals.suites import GPQA
from tasks.evals.shapes import twin
from tests.fake_run import FakeRun

ITEMS = 96

SUITE = """
name: fake-suite
steps:
  - step: eval-gpqa
    dataset: {file}
    items: 96
    max_tokens: 64
    concurrency: 8
    margin: 0.15
"""
"""A file, not the twin: lm-eval puts its own template around it, and shows the choices in an order of ours."""


@pytest.fixture(scope="module")
def cells(tmp_path_factory: pytest.TempPathFactory, node_python: Path) -> list[FakeRun]:
    """AR; one that loses half of its answers, with AR's state folder; a third one."""
    folder = tmp_path_factory.mktemp("same")
    file = folder / "gpqa.jsonl"
    file.write_text("".join(json.dumps(record) + "\n" for record in twin(GPQA)), encoding="utf-8")
    run = FakeRun(folder, "ar mtp mtp2", suite=SUITE.format(file=file))
    found = [run.cell(index) for index in range(3)]
    found[1].state = found[0].state  # whatever a framework may have kept of the better model's answers lies there
    for cell, lie in zip(found, ("honest", "half_wrong", "honest"), strict=True):
        code, said = cell.finish(node_python, lie)
        assert code == 0, said
    return found


@pytest.mark.slow(14)
def test_a_worse_model_is_asked_itself_though_a_better_one_answered_the_same_prompts(cells: list[FakeRun]) -> None:
    """lm-eval's own cache names no model; the engine counts who was asked."""
    theirs, ours = ({row["prompt_hash"]: row for row in cell.rows("eval-gpqa", "exchanges")} for cell in cells[:2])
    assert set(theirs) == set(ours) and len(cells[1].prompts_sent()) == ITEMS
    other = sum(theirs[prompt]["body"] != ours[prompt]["body"] for prompt in theirs)
    wrong = sum(not row["correct"] for row in cells[1].rows("eval-gpqa", "eval_samples"))
    assert other == wrong > 0.3 * ITEMS


def test_gpqas_choices_come_in_one_order_in_every_cell_and_state_folder(cells: list[FakeRun]) -> None:
    """lm-eval's own order follows from a process's random state, and then sticks in a cache."""
    asked = [{row["prompt_hash"] for row in cell.rows("eval-gpqa", "exchanges")} for cell in cells]
    assert asked[0] == asked[1] == asked[2] and len(asked[0]) == ITEMS
    shown = {row["messages"] for row in cells[0].rows("eval-gpqa", "exchanges")}
    assert all("What is the correct answer to this question:" in text for text in shown), "lm-eval's own template"
