"""The needle step, whole: exact lengths and depths, found and lost needles, and nothing asked twice after a kill."""

from __future__ import annotations

import hashlib
import time
from collections import Counter
from pathlib import Path

from tests.fake_run import FakeRun

SUITE = """
name: fake-suite
steps:
  - {step: smoke}
  - {step: needle, context_tokens: [512, 1500], seeds: 3, max_tokens: 256}
"""

PLACES = {(tokens, depth, seed) for tokens in (512, 1500) for depth in (10, 50, 90) for seed in range(3)}


def test_every_length_and_depth_is_met_as_the_engine_counts(tmp_path: Path, node_python: Path) -> None:
    run = FakeRun(tmp_path, suite=SUITE)
    code, said = run.finish(node_python)
    assert code == 0, said
    rows = run.rows("needle", "needles")
    assert {(row["context_tokens"], row["depth_percent"], row["seed"]) for row in rows} == PLACES
    for row in rows:
        assert 0.995 * row["context_tokens"] <= row["prompt_tokens"] <= row["context_tokens"]
        assert abs(row["depth_tokens"] - row["depth_percent"] / 100 * row["context_tokens"]) <= 2
        assert row["correct"] and row["answer"] == row["gold"] and len(row["gold"]) == 7
    assert len({row["gold"] for row in rows}) == len({row["prompt_hash"] for row in rows}) == len(rows)
    texts = [prompt for prompt in run.prompts_sent() if len(prompt.split()) > 1400]
    assert all(text.count("The secret number of") == 1 for text in texts)
    assert run.commit("needle").verdict == "ok"


def test_a_lost_needle_is_a_result_and_not_a_fault(tmp_path: Path, node_python: Path) -> None:
    run = FakeRun(tmp_path, suite=SUITE)
    code, said = run.finish(node_python, "forgets_late")
    assert code == 0, said
    found = Counter(row["depth_percent"] for row in run.rows("needle", "needles") if row["correct"])
    assert found == {10: 6, 50: 6}
    assert run.commit("needle").verdict == "ok"


def test_an_engine_that_answers_nothing_is_stopped_by_one_short_needle(tmp_path: Path, node_python: Path) -> None:
    run = FakeRun(tmp_path, suite=SUITE)
    assert run.finish(node_python, "blank")[0] == 3
    assert run.commit("smoke").reasons == ("blank_output", "failed_sanity")
    assert [row["context_tokens"] for row in run.rows("smoke", "needles")] == [512]


def test_a_killed_runner_asks_for_no_answered_needle_again(tmp_path: Path, node_python: Path) -> None:
    run = FakeRun(tmp_path, suite=SUITE)
    parts = tmp_path / f"store/runs/r1/cells/{run.key}/steps/needle/parts"
    first = run.start(node_python, FAKE_ENGINE_TOKEN_S="0.02")
    deadline = time.monotonic() + 60
    while len(list(parts.glob("needles-*"))) < 2:
        assert time.monotonic() < deadline, "waited 60 s for two answers"
        time.sleep(0.02)
    first.kill()
    first.communicate(timeout=240)
    code, said = run.finish(node_python)
    assert code == 0, said
    rows = run.rows("needle", "needles")
    assert Counter((row["context_tokens"], row["depth_percent"], row["seed"]) for row in rows) == Counter(PLACES)
    asked = Counter(hashlib.sha256(prompt.encode()).hexdigest()[:16] for prompt in run.prompts_sent())
    kept = [row["prompt_hash"] for row in rows if row["attempt"] == 1]
    assert len(kept) >= 2 and {asked[prompt] for prompt in kept} == {1}
