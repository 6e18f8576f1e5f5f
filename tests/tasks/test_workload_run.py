"""The prompts step through the whole node runner, against a fake HTTP engine that writes programs, right and wrong."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from tasks.sandbox.run import why_no_sandbox
from tests.busy_machine import KEPT_WAITING
from tests.fake_run import FakeRun
from tests.tasks.test_cell import kill, wait_until

SUITE = """
name: fake-suite
steps:
  - {step: smoke, items: 5}
  - step: prompts
    concurrencies: [1, 2]
    repeats: 3
    workloads:
      - {name: qa, language: English, prompt: "What is this?", max_tokens: 64}
      - name: code
        language: Python
        prompt: Write a Python program that reads numbers and prints their sum.
        max_tokens: 64
        check: {cases: [{stdin: 1 2 3, stdout: "6"}, {stdin: "40 2", stdout: "42"}]}
"""


@pytest.fixture(scope="module", autouse=True)
def fences() -> None:
    missing = why_no_sandbox()
    if missing is not None:
        pytest.skip(missing)


def test_prompts_are_measured_through_the_runner_and_right_programs_are_right(
    tmp_path: Path, node_python: Path
) -> None:
    run = FakeRun(tmp_path, "mtp", suite=SUITE)
    code, said = run.finish(node_python, FAKE_ENGINE_TOKEN_S="0.004")
    assert code == 0, said
    assert set(run.commit("prompts").reasons) <= KEPT_WAITING, run.rows("prompts", "verdicts")
    requests, windows = run.rows("prompts", "prompt_requests"), run.rows("prompts", "prompt_windows")
    assert Counter(row["condition"] for row in windows) == dict.fromkeys(
        ("qa c=1", "qa c=2", "code c=1", "code c=2"), 3
    )
    assert sum(row["completion_tokens"] for row in windows) == sum(row["engine_generation_tokens"] for row in windows)
    programs = Counter((row["workload"], row["program"], row["program_reason"]) for row in requests)
    assert programs == {("qa", None, None): 9, ("code", "correct", "all of 2 cases"): 9}


@pytest.mark.slow(4)
def test_a_wrong_program_is_a_result_and_no_fault(tmp_path: Path, node_python: Path) -> None:
    run = FakeRun(tmp_path, suite=SUITE)
    code, said = run.finish(node_python, "wrong_program", FAKE_ENGINE_TOKEN_S="0.004")
    assert code == 0, said
    assert set(run.commit("prompts").reasons) <= KEPT_WAITING
    programs = {(row["program"], row["program_reason"]) for row in run.rows("prompts", "prompt_requests")}
    assert programs == {(None, None), ("wrong", "case 1: printed '7', right is '6'")}


def test_a_killed_runner_keeps_the_conditions_that_were_finished(tmp_path: Path, node_python: Path) -> None:
    run = FakeRun(tmp_path, suite=SUITE)
    parts = tmp_path / f"store/runs/r1/cells/{run.key}/steps/prompts/parts"
    first = run.start(node_python, FAKE_ENGINE_TOKEN_S="0.02")
    wait_until(lambda: len(list(parts.glob("prompt_windows-*"))) >= 4, "a finished condition, and one begun")
    kill(first)
    code, said = run.finish(node_python, FAKE_ENGINE_TOKEN_S="0.004")
    assert code == 0, said
    windows = run.rows("prompts", "prompt_windows")
    assert [row["attempt"] for row in windows if row["condition"] == "qa c=1"] == [1, 1, 1]
    begun = [row["attempt"] for row in windows if row["condition"] == "code c=2"]
    assert begun == [2, 2, 2]


def test_an_engine_that_counts_other_tokens_is_rejected(tmp_path: Path, node_python: Path) -> None:
    run = FakeRun(tmp_path, suite=SUITE.replace("  - {step: smoke, items: 5}\n", ""))
    assert run.finish(node_python, "miscount", FAKE_ENGINE_TOKEN_S="0.004")[0] == 0
    verdicts = run.rows("prompts", "verdicts")
    assert {row["verdict"] for row in verdicts} == {"rejected"} and len(verdicts) == 4
    assert all("token_mismatch" in row["reasons"] for row in verdicts)
