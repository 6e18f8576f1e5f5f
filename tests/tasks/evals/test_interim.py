"""Several looks at an evaluation, over the cells of one run: who ends early, who may not, and what is published."""

from __future__ import annotations

import json
from pathlib import Path
from typing import NamedTuple

import polars as pl
import pytest

from tasks.evals.data.twins import twin
from tests.fake_run import FakeRun, ended
from warehouse.snapshot import publish, read_current

ITEMS, HALF = 192, 96

SUITE = """
name: fake-suite
steps:
  - step: eval-gpqa
    dataset: {file}
    items: 192
    max_tokens: 64
    concurrency: 8
    looks: [0.5, 1]
    margin: 0.15
"""
"""A file, not the twin: lm-eval puts its own template around it, and shows the choices in an order of ours."""


class Cells(NamedTuple):
    """One run: a technique that came before AR, AR itself, one that lost half of its answers, one as good as AR."""

    early_bird: FakeRun
    ar: FakeRun
    worse: FakeRun
    as_good: FakeRun
    said: dict[str, str]


def run_of(folder: Path, techniques: str) -> FakeRun:
    file = folder / "gpqa.jsonl"
    file.write_text("".join(json.dumps(record) + "\n" for record in twin("gpqa")), encoding="utf-8")
    return FakeRun(folder, techniques, suite=SUITE.format(file=file))


@pytest.fixture(scope="module")
def cells(tmp_path_factory: pytest.TempPathFactory, node_python: Path) -> Cells:
    run = run_of(tmp_path_factory.mktemp("looks"), "ar mtp mtp2 ngram")
    ar, worse, as_good, early_bird = (run.cell(index) for index in range(4))
    worse.state = ar.state  # whatever a framework may have kept of the better model's answers lies there
    said = {}
    for name, cell in (("early_bird", early_bird), ("ar", ar)):
        code, said[name] = cell.finish(node_python)
        assert code == 0, said[name]
    started = {"worse": worse.start(node_python, "half_wrong"), "as_good": as_good.start(node_python)}
    for name, process in started.items():
        code, said[name] = ended(process)
        assert code == 0, said[name]
    return Cells(early_bird, ar, worse, as_good, said)


@pytest.mark.slow(14)
def test_a_technique_that_is_clearly_worse_ends_at_the_first_look(cells: Cells) -> None:
    assert len(cells.worse.prompts_sent()) == len(cells.worse.rows("eval-gpqa", "exchanges")) == HALF
    assert "eval-gpqa: ended early, worse (96 items, look 1 of 2, level " in cells.said["worse"]


@pytest.mark.slow(15)
def test_one_that_is_clearly_as_good_ends_there_too(cells: Cells) -> None:
    assert len(cells.as_good.prompts_sent()) == HALF
    assert "eval-gpqa: ended early, non-inferior (96 items, look 1 of 2" in cells.said["as_good"]


def test_ar_and_a_technique_without_a_committed_ar_ask_everything(cells: Cells) -> None:
    for cell in (cells.ar, cells.early_bird):
        assert len(cell.prompts_sent()) == ITEMS, "what the first look asked is replayed at the second"
        assert len(cell.rows("eval-gpqa", "eval_samples")) == ITEMS
    assert "ended early" not in cells.said["ar"] + cells.said["early_bird"]


@pytest.mark.slow(9)
def test_an_ar_cell_that_guessed_ends_nobodys_evaluation(tmp_path: Path, node_python: Path) -> None:
    run = run_of(tmp_path, "ar mtp")
    guessing, honest = run.cell(0), run.cell(1)
    assert guessing.finish(node_python, "at_chance")[0] == 0
    assert guessing.commit("eval-gpqa").reasons == ("at_chance",)
    code, said = honest.finish(node_python)
    assert code == 0 and "ended early" not in said
    assert len(honest.prompts_sent()) == ITEMS, "it would be better than AR, but nothing is compared with a rejected AR"


def test_the_published_comparison_says_at_which_look_it_was_made(cells: Cells) -> None:
    publish(cells.ar.ledger.store)
    pairs = read_current(cells.ar.ledger.store, "pairs").filter(pl.col("kind") == "accuracy")
    found = {row["cell_key"]: (row["n"], row["look"], row["conclusion"]) for row in pairs.to_dicts()}
    assert found == {
        cells.worse.key: (HALF, 1, "worse"),
        cells.as_good.key: (HALF, 1, "non-inferior"),
        cells.early_bird.key: (ITEMS, 2, "non-inferior"),
    }


def test_a_worse_model_is_asked_itself_though_a_better_one_answered_the_same_prompts(cells: Cells) -> None:
    """lm-eval's own cache names no model; the engine counts who was asked."""
    ours, theirs = ({row["prompt_hash"]: row for row in cell.rows("eval-gpqa", "exchanges")} for cell in cells[1:3])
    assert set(theirs) < set(ours)
    other = sum(theirs[prompt]["body"] != ours[prompt]["body"] for prompt in theirs)
    wrong = sum(not row["correct"] for row in cells.worse.rows("eval-gpqa", "eval_samples"))
    assert other == wrong > 0.3 * HALF


def test_gpqas_choices_come_in_one_order_in_every_cell_and_state_folder(cells: Cells) -> None:
    """lm-eval's own order follows from a process's random state, and then sticks in a cache."""
    asked = [{row["prompt_hash"] for row in cell.rows("eval-gpqa", "exchanges")} for cell in cells[:4]]
    assert asked[0] == asked[1] and len(asked[0]) == ITEMS
    assert asked[2] == asked[3] < asked[0]
    shown = {row["messages"] for row in cells.ar.rows("eval-gpqa", "exchanges")}
    assert all("What is the correct answer to this question:" in text for text in shown), "lm-eval's own template"
