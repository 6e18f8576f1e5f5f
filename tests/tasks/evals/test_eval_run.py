"""Evaluation steps as a node measures them: the real runner and the real frameworks, a fake engine."""

import json
import signal
from collections import Counter
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import polars as pl
import pytest

from configs.evals.suites import GPQA
from configs.steps.eval import EvalStep
from flows.terminal.regrade import regrade
from tasks.evals.exchange import canonical
from tasks.evals.response_log import FLUSH_ITEMS
from tasks.evals.shapes import TWIN_REVISION, twin
from tasks.sanity_questions import GENERAL
from tests.fake_run import FakeRun, ended
from tests.tasks.evals.graded import jsonl
from tests.tasks.test_cell import kill, processes_with, wait_until
from warehouse.dataset.snapshot import publish, read_current
from warehouse.ledger.tables import decode

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
SANE = {question.prompt for question in GENERAL}  # what smoke asks of every model; no evaluation does


class Measured(FakeRun):
    def __init__(self, folder: Path, node_python: Path) -> None:
        super().__init__(folder, suite=SUITE)
        bodies = folder / "bodies.jsonl"
        self.measured(node_python, FAKE_ENGINE_BODIES=str(bodies))
        said: list[dict[str, Any]] = [json.loads(line) for line in bodies.read_text().splitlines()]
        self.bodies = [body for body in said if body["messages"][-1]["content"] not in SANE]

    @property
    def evals(self) -> list[EvalStep]:
        return [spec for spec in self.planned.steps if isinstance(spec, EvalStep)]


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory, node_python: Path) -> Measured:
    return Measured(tmp_path_factory.mktemp("measured"), node_python)


@pytest.mark.core
@pytest.mark.slow(33)
def test_all_three_frameworks_commit_every_answer_and_where_it_came_from(measured: Measured) -> None:
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
    of_ifeval = {row["metric"] for row in measured.rows("eval-ifeval", "eval_scores") if row["source"] == "ours"}
    assert of_ifeval == {"prompt_level_strict_acc"}
    assert named == {spec.step: spec.evaluation.metric for spec in measured.evals}


def test_whatever_a_framework_says_the_engine_hears_the_steps_sampling_and_no_stop_string(measured: Measured) -> None:
    fields = {"model", "messages", "max_tokens", "temperature", "top_p", "seed", "chat_template_kwargs"}
    assert {frozenset(body) for body in measured.bodies} == {frozenset(fields)}
    common = {(body["temperature"], body["top_p"], body["max_tokens"]) for body in measured.bodies}
    assert common == {(0.6, 0.95, 64)}
    assert all(body["chat_template_kwargs"] == {"enable_thinking": True} for body in measured.bodies)


@pytest.mark.slow(36)
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
    "sane_but_blank": ("blank_output", "read: last_in_body none, strict none, flexible none, first A"),
    "at_chance": ("at_chance", "read: last_in_body A, strict A"),
    "cut_off": ("truncated", "ended by length after "),
    "two_letters": ("extractors_disagree", "read: last_in_body "),
}
"""A lie, the reason that it is rejected for, and what is said of an answer: GPQA's text may not be spread."""


@pytest.mark.slow(4)
@pytest.mark.parametrize("lie", LIES)
def test_the_gate_stops_a_cell_and_shows_an_answer(lie: str, refused: dict[str, tuple[FakeRun, int, str]]) -> None:
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


LEFT = """
name: fake-suite
steps:
  - {{step: smoke, items: 5}}
  - {{step: {step}, dataset: twin, items: 12, max_tokens: 64, concurrency: 8, seed: 6}}
"""

THOUGHTS_LEFT: dict[str, tuple[str, list[str]]] = {
    "gemma_thoughts": ("eval-gpqa", []),
    "mistral_thoughts": ("eval-gpqa-inspect", []),
    "harmony_thoughts": ("eval-kmmlu", []),
    "bare_thoughts": ("eval-ifeval", ["no_thinking"]),
    "unthinking": ("eval-gpqa", ["no_thinking"]),
}
"""What the engine leaves in the body, a step of each framework, and what is found in the step's answers."""


@pytest.fixture(scope="module")
def left(tmp_path_factory: pytest.TempPathFactory, node_python: Path) -> dict[str, tuple[FakeRun, int, str]]:
    steps = {lie: step for lie, (step, _) in THOUGHTS_LEFT.items()}
    runs = {lie: FakeRun(tmp_path_factory.mktemp(lie), suite=LEFT.format(step=step)) for lie, step in steps.items()}
    started = {lie: run.start(node_python, lie) for lie, run in runs.items()}
    return {lie: (runs[lie], *ended(process)) for lie, process in started.items()}


@pytest.mark.slow(22)
@pytest.mark.parametrize("lie", THOUGHTS_LEFT)
def test_thoughts_in_another_format_are_not_graded(lie: str, left: dict[str, tuple[FakeRun, int, str]]) -> None:
    """Every thought says A. Where marks show its end, no guard fires; else the step is suspect. Scores are right."""
    (run, code, said), (step, reasons) = left[lie], THOUGHTS_LEFT[lie]
    assert code == 0, said
    samples = run.rows(step, "eval_samples")
    assert len(samples) == 12 and all(row["correct"] for row in samples)
    assert list(run.commit(step).reasons) == reasons
    assert [row["framework_correct"] for row in samples if step in ("eval-gpqa", "eval-ifeval")] in ([True] * 12, [])


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
    file = jsonl(folder / "gpqa.jsonl", twin(GPQA))
    run = FakeRun(folder, "ar mtp mtp2", suite=SAME.format(file=file))
    found = [run.cell(index) for index in range(3)]
    found[1].state = found[0].state  # whatever a framework may have kept of the better model's answers lies there
    for cell, lie in zip(found, ("honest", "half_wrong", "honest"), strict=True):
        cell.measured(node_python, lie)
    return found


@pytest.mark.slow(21)
def test_a_worse_model_is_asked_itself_though_a_better_one_answered_the_same_prompts(cells: list[FakeRun]) -> None:
    """lm-eval's own cache names no model; the engine counts who was asked."""
    theirs, ours = ({row["prompt_hash"]: row for row in cell.rows("eval-gpqa", "exchanges")} for cell in cells[:2])
    assert set(theirs) == set(ours) and len(cells[1].prompts_sent()) == 96
    other = sum(theirs[prompt]["body"] != ours[prompt]["body"] for prompt in theirs)
    wrong = sum(not row["correct"] for row in cells[1].rows("eval-gpqa", "eval_samples"))
    assert other == wrong > 0.3 * 96


@pytest.mark.slow(4)
def test_gpqas_choices_come_in_one_order_in_every_cell_and_state_folder(cells: list[FakeRun]) -> None:
    """lm-eval's own order follows from a process's random state, and then sticks in a cache."""
    asked = [{row["prompt_hash"] for row in cell.rows("eval-gpqa", "exchanges")} for cell in cells]
    assert asked[0] == asked[1] == asked[2] and len(asked[0]) == 96
    shown = {row["messages"] for row in cells[0].rows("eval-gpqa", "exchanges")}
    assert all("What is the correct answer to this question:" in text for text in shown), "lm-eval's own template"


ITEMS, AT_ONCE = 192, 8

ASKED = f"""
name: fake-suite
steps:
  - {{step: eval-gpqa, dataset: twin, items: {ITEMS}, max_tokens: 64, concurrency: {AT_ONCE}}}
"""

DIES_AFTER, KILLED_AFTER, STOPPED_AFTER = 30, 90, 20
"""Answers of the first three attempts. The second one's fill a part, and some more that a kill loses."""


class Attempt(NamedTuple):
    """What the engine was asked in an attempt, and the answers that were in the store afterwards."""

    code: int
    said: str
    asked: list[str]
    stored: list[dict[str, Any]]
    left_running: int


class Story:
    """Four attempts at one evaluation: the engine dies, the runner is killed, is asked to stop, and gets through.

    The engine says by itself after how many requests it dies or hangs, so what was answered at each end is known.
    """

    def __init__(self, folder: Path, node_python: Path) -> None:
        self.run, self._python, self._seen = FakeRun(folder, suite=ASKED), node_python, 0
        self.died = self._noted(*self.run.finish(node_python, "dies_later", FAKE_ENGINE_AFTER=str(DIES_AFTER)))
        self.killed = self._killed()
        self.stopped = self._stopped()
        self.completed = self._noted(*self.run.finish(node_python))

    def stored(self) -> list[dict[str, Any]]:
        folder = self.run.folder / f"store/runs/r1/cells/{self.run.key}/steps/eval-gpqa/parts"
        return [row for part in sorted(folder.glob("exchanges-*")) for row in decode(part.read_bytes(), part.name)]

    def _killed(self) -> Attempt:
        runner = self.run.start(self._python, "hangs_later", FAKE_ENGINE_AFTER=str(KILLED_AFTER))
        before = len(self.stored())
        wait_until(lambda: len(self.stored()) >= before + FLUSH_ITEMS, "a full part of the response log")
        self._all_asked(KILLED_AFTER)
        kill(runner)
        return self._noted(runner.returncode, "")

    def _stopped(self) -> Attempt:
        runner = self.run.start(self._python, "hangs_later", FAKE_ENGINE_AFTER=str(STOPPED_AFTER))
        self._all_asked(STOPPED_AFTER)
        runner.send_signal(signal.SIGTERM)
        return self._noted(*ended(runner))

    def _all_asked(self, answers: int) -> None:
        """Wait until the framework waits with all it may ask at a time: then every answer has reached it."""
        wait_until(lambda: len(self.run.prompts_sent()) == self._seen + answers + AT_ONCE, "the engine to hang")

    def _noted(self, code: int, said: str) -> Attempt:
        sent = self.run.prompts_sent()
        asked, self._seen = sent[self._seen :], len(sent)
        return Attempt(code, said, asked, self.stored(), len(processes_with(str(self.run.counts))))


@pytest.fixture(scope="module")
def story(tmp_path_factory: pytest.TempPathFactory, node_python: Path) -> Story:
    return Story(tmp_path_factory.mktemp("story"), node_python)


@pytest.mark.slow(15)
def test_an_engine_that_dies_in_the_middle_fails_the_attempt_with_its_own_cause_and_no_blank(story: Story) -> None:
    assert story.died.code == 1
    reason = story.run.attempts()[0].reason
    assert "the engine died during a request: RuntimeError: the fake engine dies on purpose" in reason
    assert "\n" not in reason
    assert DIES_AFTER - AT_ONCE < len(story.died.stored) <= DIES_AFTER, "what was answered before is kept"
    assert all(row["body"] and row["finish_reason"] == "stop" for row in story.died.stored)


@pytest.mark.slow(4)
def test_a_killed_runner_loses_what_was_not_stored_and_leaves_nothing_behind_for_long(story: Story) -> None:
    fresh = len(story.killed.stored) - len(story.died.stored)
    assert FLUSH_ITEMS <= fresh <= KILLED_AFTER < fresh + FLUSH_ITEMS
    assert story.killed.left_running > 0, "the engine and the framework outlive their runner"
    assert story.completed.left_running == 0


@pytest.mark.slow(4)
def test_a_runner_that_is_asked_to_stop_loses_no_answer(story: Story) -> None:
    assert story.stopped.code == 143
    assert len(story.stopped.stored) - len(story.killed.stored) == STOPPED_AFTER
    assert story.stopped.left_running == 0


@pytest.mark.slow(4)
def test_no_stored_answer_is_asked_for_again_and_the_last_attempt_asks_what_is_missing(story: Story) -> None:
    attempts = [story.died, story.killed, story.stopped, story.completed]
    for before, after in pairwise(attempts):
        known = {str(json.loads(row["messages"])[-1]["content"]) for row in before.stored}
        assert not known & set(after.asked)
    assert len(story.completed.asked) == ITEMS - len(story.stopped.stored)
    assert [attempt.outcome for attempt in story.run.attempts()] == ["failed", "lost", "stopped", "completed"]


@pytest.mark.slow(4)
def test_what_four_attempts_put_together_is_one_evaluation(story: Story) -> None:
    assert story.completed.code == 0, story.completed.said
    exchanges = story.run.rows("eval-gpqa", "exchanges")
    assert {row["attempt"] for row in exchanges} == {1, 2, 3, 4}
    assert Counter((row["request_hash"], row["occurrence"]) for row in exchanges).most_common(1)[0][1] == 1
    samples = story.run.rows("eval-gpqa", "eval_samples")
    assert len(exchanges) == len(samples) == ITEMS and all(row["correct"] for row in samples)
    assert {row["attempt"] for row in samples} == {4}, "graded once, over all of them"


@pytest.mark.slow(30)
def test_a_framework_that_gets_no_answers_fails_its_attempt_and_has_no_score(tmp_path: Path, node_python: Path) -> None:
    steps = {"lm-eval": "eval-gpqa", "inspect": "eval-gpqa-inspect", "hret": "eval-haerae"}
    few = ASKED.replace(f"items: {ITEMS}", "items: 8")
    runs = {name: FakeRun(tmp_path / name, suite=few.replace("eval-gpqa", step)) for name, step in steps.items()}
    started = {framework: run.start(node_python, "error") for framework, run in runs.items()}
    for framework, run in runs.items():
        code, said = ended(started[framework])
        assert code == 1, said
        (attempt,) = run.attempts()
        assert (attempt.outcome, attempt.exit_code) == ("failed", 1)
        assert "the fake engine fails on purpose" in attempt.reason, attempt.reason
        assert run.ledger.committed_steps() == {}
        assert run.prompts_sent() and not list(run.folder.rglob("eval_samples-*"))
        assert processes_with(str(run.folder)) == []


def test_answers_that_cant_be_stored_end_the_attempt_and_the_framework(tmp_path: Path, node_python: Path) -> None:
    run = FakeRun(tmp_path, suite=ASKED)
    parts = tmp_path / f"store/runs/r1/cells/{run.key}/steps/eval-gpqa/parts"
    parts.parent.mkdir(parents=True)
    parts.write_text("no folder")
    code, said = run.finish(node_python, "hangs_later", FAKE_ENGINE_AFTER=str(KILLED_AFTER))
    assert code == 1, said
    (attempt,) = run.attempts()
    assert attempt.outcome == "failed" and attempt.reason.startswith(f"can't write {parts}/")
    assert processes_with(str(tmp_path)) == []
