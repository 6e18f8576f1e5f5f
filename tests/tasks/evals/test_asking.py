"""One evaluation over four attempts, each ended in another way; and engines that answer nothing.

The engine says by itself after how many requests it dies or hangs, so what was answered at each end is known exactly.
"""

from __future__ import annotations

import json
import signal
from collections import Counter
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tasks.evals.response_log import FLUSH_ITEMS
from tests.fake_run import FakeRun, ended
from tests.tasks.test_cell import kill, processes_with, wait_until
from warehouse.ledger.tables import decode

ITEMS, AT_ONCE = 192, 8

SUITE = f"""
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
    """Four attempts at one evaluation: the engine dies, the runner is killed, is asked to stop, and gets through."""

    def __init__(self, folder: Path, node_python: Path) -> None:
        self.run, self._python, self._seen = FakeRun(folder, suite=SUITE), node_python, 0
        self.died = self._noted(*self._start("dies_later", DIES_AFTER))
        self.killed = self._killed()
        self.stopped = self._stopped()
        self.completed = self._noted(*self.run.finish(node_python))

    def stored(self) -> list[dict[str, Any]]:
        folder = self.run.folder / f"store/runs/r1/cells/{self.run.key}/steps/eval-gpqa/parts"
        return [row for part in sorted(folder.glob("exchanges-*")) for row in decode(part.read_bytes(), part.name)]

    def _start(self, lie: str, after: int) -> tuple[int, str]:
        return self.run.finish(self._python, lie, FAKE_ENGINE_AFTER=str(after))

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


@pytest.mark.slow(10)
def test_an_engine_that_dies_in_the_middle_fails_the_attempt_with_its_own_cause_and_no_blank(story: Story) -> None:
    assert story.died.code == 1
    reason = story.run.attempts()[0].reason
    assert "the engine died during a request: RuntimeError: the fake engine dies on purpose" in reason
    assert "\n" not in reason
    assert DIES_AFTER - AT_ONCE < len(story.died.stored) <= DIES_AFTER, "what was answered before is kept"
    assert all(row["body"] and row["finish_reason"] == "stop" for row in story.died.stored)


def test_a_killed_runner_loses_what_was_not_stored_and_leaves_nothing_behind_for_long(story: Story) -> None:
    fresh = len(story.killed.stored) - len(story.died.stored)
    assert FLUSH_ITEMS <= fresh <= KILLED_AFTER < fresh + FLUSH_ITEMS
    assert story.killed.left_running > 0, "the engine and the framework outlive their runner"
    assert story.completed.left_running == 0


def test_a_runner_that_is_asked_to_stop_loses_no_answer(story: Story) -> None:
    assert story.stopped.code == 143
    assert len(story.stopped.stored) - len(story.killed.stored) == STOPPED_AFTER
    assert story.stopped.left_running == 0


def test_no_stored_answer_is_asked_for_again_and_the_last_attempt_asks_what_is_missing(story: Story) -> None:
    attempts = [story.died, story.killed, story.stopped, story.completed]
    for before, after in pairwise(attempts):
        known = {prompt_of(row) for row in before.stored}
        assert not known & set(after.asked)
    assert len(story.completed.asked) == ITEMS - len(story.stopped.stored)
    assert [attempt.outcome for attempt in story.run.attempts()] == ["failed", "lost", "stopped", "completed"]


def test_what_four_attempts_put_together_is_one_evaluation(story: Story) -> None:
    assert story.completed.code == 0, story.completed.said
    exchanges = story.run.rows("eval-gpqa", "exchanges")
    assert {row["attempt"] for row in exchanges} == {1, 2, 3, 4}
    assert Counter((row["request_hash"], row["occurrence"]) for row in exchanges).most_common(1)[0][1] == 1
    samples = story.run.rows("eval-gpqa", "eval_samples")
    assert len(exchanges) == len(samples) == ITEMS and all(row["correct"] for row in samples)
    assert {row["attempt"] for row in samples} == {4}, "graded once, over all of them"


@pytest.mark.slow(20)
def test_a_framework_that_gets_no_answers_is_a_failed_attempt_and_never_a_score(
    tmp_path: Path, node_python: Path
) -> None:
    steps = {"lm-eval": "eval-gpqa", "inspect": "eval-gpqa-inspect", "hret": "eval-haerae"}
    runs = {
        framework: FakeRun(
            tmp_path / framework, suite=SUITE.replace("eval-gpqa", step).replace(f"items: {ITEMS}", "items: 8")
        )
        for framework, step in steps.items()
    }
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
    run = FakeRun(tmp_path, suite=SUITE)
    parts = tmp_path / f"store/runs/r1/cells/{run.key}/steps/eval-gpqa/parts"
    parts.parent.mkdir(parents=True)
    parts.write_text("no folder")
    code, said = run.finish(node_python, "hangs_later", FAKE_ENGINE_AFTER=str(KILLED_AFTER))
    assert code == 1, said
    (attempt,) = run.attempts()
    assert attempt.outcome == "failed" and attempt.reason.startswith(f"can't write {parts}/")
    assert processes_with(str(tmp_path)) == []


def prompt_of(row: dict[str, Any]) -> str:
    """The question of an exchange."""
    return str(json.loads(row["messages"])[-1]["content"])
