"""Evaluation steps as a node measures them: the real runner and the real frameworks, a fake engine."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from configs.evals.suites import GPQA
from configs.steps.eval import EvalStep
from flows.terminal.regrade import regrade
from tasks.evals.exchange import canonical
from tasks.evals.shapes import TWIN_REVISION, twin
from tasks.sanity_questions import GENERAL
from tests.fake_run import FakeRun, ended
from tests.tasks.test_cell import processes_with
from warehouse.dataset.snapshot import publish, read_current

SUITE = """
name: fake-suite
steps:
  - {step: smoke, items: 5}
  - {step: eval-gpqa, dataset: twin, items: 24, max_tokens: 64, concurrency: 8, samples: 2, seed: 7}
  - {step: eval-mmlu-pro, dataset: twin, items: 24, max_tokens: 64, concurrency: 8}
  - {step: eval-ifeval, dataset: twin, items: 12, max_tokens: 64, concurrency: 8}
  - {step: eval-gpqa-inspect, dataset: twin, items: 24, max_tokens: 64, concurrency: 8}
  - {step: eval-haerae, dataset: twin, items: 24, max_tokens: 64, concurrency: 8}
  - {step: eval-kmmlu, dataset: twin, items: 24, max_tokens: 64, concurrency: 8}
"""

GATED = """
name: fake-suite
steps:
  - {step: smoke, items: 5}
  - {step: eval-gpqa, dataset: twin, items: 24, max_tokens: 64, seed: 6}
"""
"""With this seed, none of the first five answers is A."""

SANE = {question.prompt for question in GENERAL}
"""What smoke asks of every model; no evaluation does."""


class Measured(FakeRun):
    """A cell whose evaluations all three frameworks measured."""

    def __init__(self, folder: Path, node_python: Path) -> None:
        super().__init__(folder, suite=SUITE)
        bodies = folder / "bodies.jsonl"
        code, said = self.finish(node_python, FAKE_ENGINE_BODIES=str(bodies))
        assert code == 0, said
        said: list[dict[str, Any]] = [json.loads(line) for line in bodies.read_text().splitlines()]
        self.bodies = [body for body in said if body["messages"][-1]["content"] not in SANE]

    @property
    def evals(self) -> list[EvalStep]:
        return [spec for spec in self.planned.steps if isinstance(spec, EvalStep)]


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory, node_python: Path) -> Measured:
    return Measured(tmp_path_factory.mktemp("measured"), node_python)


@pytest.mark.core
@pytest.mark.slow(22)
def test_the_evaluations_of_all_three_frameworks_commit_with_every_answer_and_where_it_came_from(
    measured: Measured,
) -> None:
    assert {spec.framework for spec in measured.evals} == {"lm-eval", "inspect", "hret"}
    for spec in measured.evals:
        assert measured.commit(spec.step).verdict == "ok", spec.step
        samples, exchanges = (measured.rows(spec.step, table) for table in ("eval_samples", "exchanges"))
        answers = Counter((row["request_hash"], row["occurrence"], row["sample"]) for row in exchanges)
        assert Counter((row["request_hash"], row["occurrence"], row["sample"]) for row in samples) == answers
        assert len(answers) == len(samples) == spec.n_items * spec.samples
        assert all(row["correct"] and not row["truncated"] and not row["blank"] for row in samples), spec.step
        begun, provenance = measured.rows(spec.step, "provenance")
        assert begun["dataset_revision"] is None, "what only the step knows is said at its end, and counts"
        assert (provenance["dataset_revision"], provenance["seed"]) == (TWIN_REVISION, spec.seed)
    assert processes_with(str(measured.folder)) == []


def test_each_framework_publishes_its_own_score_beside_ours_under_a_metric_that_is_named(measured: Measured) -> None:
    named = {}
    for spec in measured.evals:
        scores = measured.rows(spec.step, "eval_scores")
        assert {row["framework"] for row in scores} == {spec.framework}
        (ours,) = (row for row in scores if row["extractor"] in ("last-in-body", "checker"))
        assert (ours["source"], ours["value"], ours["n"]) == ("ours", 1.0, spec.n_items)
        (own,) = (row for row in scores if row["source"] == "framework" and row["extractor"] == "framework")
        named[spec.step] = own["metric"]
    assert {row["metric"] for row in measured.rows("eval-ifeval", "eval_scores") if row["source"] == "ours"} == {
        "prompt_level_strict_acc"
    }
    assert named == {spec.step: spec.evaluation.metric for spec in measured.evals}


def test_whatever_a_framework_says_the_engine_hears_the_steps_sampling_and_no_stop_string(measured: Measured) -> None:
    fields = {"model", "messages", "max_tokens", "temperature", "top_p", "seed", "chat_template_kwargs"}
    assert {frozenset(body) for body in measured.bodies} == {frozenset(fields)}
    common = {(body["temperature"], body["top_p"], body["max_tokens"]) for body in measured.bodies}
    assert common == {(0.6, 0.95, 64)}
    assert all(body["chat_template_kwargs"] == {"enable_thinking": True} for body in measured.bodies)


@pytest.mark.slow(24)
def test_two_answers_to_an_item_have_two_seeds_and_count_as_one_item(measured: Measured) -> None:
    questions = {row["messages"] for row in measured.rows("eval-gpqa", "exchanges")}
    asked = Counter((canonical(body["messages"]), body["seed"]) for body in measured.bodies)
    assert len(questions) == 24
    assert {question for question, seed in asked if seed == 8} == questions
    assert all(asked[question, 7] >= 1 and asked[question, 8] == 1 for question in questions)
    publish(measured.ledger.store)
    results = read_current(measured.ledger.store)
    counting = results.filter((pl.col("step") == "eval-gpqa") & (pl.col("extractor") == "last-in-body"))
    assert counting.select("samples", "n").rows() == [(2, 24)]


def test_grading_again_what_was_just_measured_changes_nothing_and_needs_no_engine(measured: Measured) -> None:
    store, sent = measured.ledger.store, len(measured.prompts_sent())
    before = {key: store.get(key) for key in store.list("runs")}
    graded = regrade(measured.ledger, None, dry_run=False)
    assert {one.step: one.state for one in graded} == {spec.step: "unchanged" for spec in measured.evals}
    assert {key: store.get(key) for key in store.list("runs")} == before
    assert len(measured.prompts_sent()) == sent


@pytest.fixture(scope="module")
def refused(tmp_path_factory: pytest.TempPathFactory, node_python: Path) -> dict[str, tuple[FakeRun, int, str]]:
    """A cell behind the smoke gate for each lie, all at a time: its run, exit code, and what its runner said."""
    runs = {lie: FakeRun(tmp_path_factory.mktemp(lie), suite=GATED) for lie in LIES}
    started = {lie: run.start(node_python, lie) for lie, run in runs.items()}
    return {lie: (runs[lie], *ended(process)) for lie, process in started.items()}


LIES = {
    "blank": ("blank_output", "read: last_in_body none, strict none, flexible none, first A"),
    "at_chance": ("at_chance", "read: last_in_body A, strict A"),
    "cut_off": ("truncated", "ended by length after "),
    "two_letters": ("extractors_disagree", "read: last_in_body "),
}
"""A lie, the reason that it is rejected for, and what is said of an answer: GPQA's text may not be spread."""


@pytest.mark.slow(3)
@pytest.mark.parametrize("lie", LIES)
def test_the_gate_stops_a_cell_whose_few_answers_are_no_answers_and_shows_one(
    lie: str, refused: dict[str, tuple[FakeRun, int, str]]
) -> None:
    run, code, said = refused[lie]
    reason, outline = LIES[lie]
    assert code == 3, said
    assert [(attempt.outcome, attempt.exit_code) for attempt in run.attempts()] == [("failed", 3)]
    (verdict,) = run.rows("smoke", "verdicts")
    assert verdict["verdict"] == "rejected"
    shown = dict(zip(verdict["reasons"], verdict["details"], strict=True))
    assert outline in shown[reason], shown
    assert [word for word in ("[thinking]", "[answer]", "maybe", "and not") if word in shown[reason]] == []
    asked = [prompt for prompt in run.prompts_sent() if prompt not in SANE]
    assert len(asked) in (5, 10), "a few questions, some more where those leave a doubt"
    assert run.ledger.committed_steps() == {run.key: ["smoke"]}
    assert not list(run.folder.rglob("steps/eval-gpqa")), "no evaluation was begun"


# GPQA through lm-eval over the cells of one run: every cell is asked itself, the same questions in the same words.

SAME = """
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
    run = FakeRun(folder, "ar mtp mtp2", suite=SAME.format(file=file))
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
    assert set(theirs) == set(ours) and len(cells[1].prompts_sent()) == 96
    other = sum(theirs[prompt]["body"] != ours[prompt]["body"] for prompt in theirs)
    wrong = sum(not row["correct"] for row in cells[1].rows("eval-gpqa", "eval_samples"))
    assert other == wrong > 0.3 * 96


def test_gpqas_choices_come_in_one_order_in_every_cell_and_state_folder(cells: list[FakeRun]) -> None:
    """lm-eval's own order follows from a process's random state, and then sticks in a cache."""
    asked = [{row["prompt_hash"] for row in cell.rows("eval-gpqa", "exchanges")} for cell in cells]
    assert asked[0] == asked[1] == asked[2] and len(asked[0]) == 96
    shown = {row["messages"] for row in cells[0].rows("eval-gpqa", "exchanges")}
    assert all("What is the correct answer to this question:" in text for text in shown), "lm-eval's own template"
