"""Each fault of docs/guards.md that an engine can have, planted in a real HTTP server, under both timed steps."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest

from configs.checkout import ROOT
from tests.busy_machine import KEPT_WAITING
from tests.fake_run import FakeRun
from tests.tasks.test_cell import wait_until
from warehouse.clock import moment_s

THROUGHPUT = """
  - step: throughput
    prompts: prose
    conditions:
      - {name: short c=1, context_tokens: 64, output_tokens: 32, repeats: 3, requests: 5}
"""
LOAD = """
  - {step: load, dataset: twin, requests_per_category: 2, concurrencies: [2], max_tokens: 32}
"""
PROMPTS = """
  - step: prompts
    repeats: 2
    workloads:
      - {name: qa, language: English, prompt: "What is this?", max_tokens: 32}
      - {name: short, language: English, prompt: "Why?", max_tokens: 32}
"""


def suite(*steps: str) -> str:
    """Without smoke, which would stop most of these before a speed is measured."""
    return "\n".join(["name: fake-suite", "steps:", *(step.strip("\n") for step in steps)])


BOTH = suite(THROUGHPUT, LOAD)


@pytest.mark.parametrize(
    ("lie", "technique", "severity", "throughput", "load"),
    [
        ("counts_chunks", "ar", "rejected", "token_mismatch", "token_mismatch"),
        ("miscount", "ar", "rejected", "token_mismatch", "token_mismatch"),
        ("usage_high", "ar", "rejected", "token_mismatch", "token_mismatch"),
        ("usage_low", "ar", "rejected", "token_mismatch", "token_mismatch"),
        ("says_less", "ar", "rejected", "token_mismatch", "token_mismatch"),
        ("reads_less", "ar", "suspect", "prompt_length", "prompt_length"),
        ("cache_hits", "ar", "rejected", "prefix_cache_hit", "prefix_cache_hit"),
        ("cached_usage", "ar", "rejected", "prefix_cache_hit", "prefix_cache_hit"),
        ("preempts", "ar", "suspect", "engine_preemption", "engine_preemption"),
        ("some_errors", "ar", "rejected", "request_failed", "request_failed"),
        ("cuts", "ar", "rejected", "request_failed", "request_failed"),
        ("dead_draft", "mtp", "rejected", "dead_draft", "dead_draft"),
        ("drafts_apart", "mtp", "rejected", "acceptance_mismatch", "acceptance_mismatch"),
        ("drafts_secretly", "ar", "rejected", "baseline_drafts", "baseline_drafts"),
    ],
)
def test_a_fault_is_caught_by_its_code_in_both_timed_steps(
    tmp_path: Path, node_python: Path, lie: str, technique: str, severity: str, throughput: str, load: str
) -> None:
    run = FakeRun(tmp_path, technique, suite=BOTH)
    code, said = run.finish(node_python, lie)
    assert code == 0, said
    for step, reason in (("throughput", throughput), ("load", load)):
        told = [row for row in run.rows(step, "verdicts") if reason in row["reasons"]]
        assert told, (step, run.rows(step, "verdicts"))
        # what is only suspect may be worse for another reason, on a busy machine
        assert all(severity == "suspect" or row["verdict"] == "rejected" for row in told)
        assert all(row["verdict"] != "ok" and all(row["details"]) for row in told)


def test_first_tokens_that_are_not_sent_as_they_are_made_are_seen(tmp_path: Path, node_python: Path) -> None:
    """A client that slept says so instead: what it heard late is no fault of the engine's."""
    run = FakeRun(tmp_path, suite=BOTH)
    code, said = run.finish(node_python, "hides_first", FAKE_ENGINE_TOKEN_S="0.01")
    assert code == 0, said
    for step, table in (("throughput", "requests"), ("load", "load_requests")):
        first = [row["first_chunk_tokens"] for row in run.rows(step, table) if row["first_chunk_tokens"]]
        assert first and min(first) == 4
        streamed = [row for row in run.rows(step, "verdicts") if row["mode"] != "fixed"]
        assert streamed and all({"late_first_token", "client_starved"} & {*row["reasons"]} for row in streamed)


def test_nothing_of_it_fires_on_a_healthy_engine(tmp_path: Path, node_python: Path) -> None:
    run = FakeRun(tmp_path, "mtp", suite=BOTH)
    code, said = run.finish(node_python, FAKE_ENGINE_TOKEN_S="0.01")
    assert code == 0, said
    for step in ("throughput", "load"):
        assert set(run.commit(step).reasons) <= KEPT_WAITING, run.rows(step, "verdicts")
    asked = run.rows("load", "load_requests")
    assert asked and all(row["prompt_tokens"] == row["counted_prompt_tokens"] for row in asked)


@pytest.mark.parametrize("lie", ["short", "blank"])
def test_outputs_that_are_short_or_empty_are_no_parity(tmp_path: Path, node_python: Path, lie: str) -> None:
    """With the technique off and on they would be equal, token for token."""
    parity = "  - {step: parity, prompts: prose, n_prompts: 2, context_tokens: 64, output_tokens: 32}"
    run = FakeRun(tmp_path, suite=suite(parity))
    run.finish(node_python, lie)
    [verdict] = run.rows("parity", "verdicts")
    assert (verdict["verdict"], list(verdict["reasons"])) == ("rejected", ["short_output"])


def test_an_answer_that_is_shorter_than_its_usage_stops_a_load_in_smoke(tmp_path: Path, node_python: Path) -> None:
    run = FakeRun(tmp_path, suite=suite("  - {step: smoke, items: 5}", LOAD))
    assert run.finish(node_python, "says_less")[0] == 3
    assert "token_mismatch" in run.commit("smoke").reasons


def test_a_cache_that_counts_nothing_can_not_help_prompts_that_never_repeat(tmp_path: Path, node_python: Path) -> None:
    run = FakeRun(tmp_path, suite=suite(THROUGHPUT))
    code, said = run.finish(node_python, "caches", FAKE_ENGINE_TOKEN_S="0.005")
    assert code == 0, said
    sent = run.prompts_sent()
    assert len(set(sent)) == len(sent) > 20
    fixed = [row["wall_s"] for row in run.rows("throughput", "requests") if row["mode"] == "fixed"]
    assert min(fixed) > 0.4 + 32 * 0.005, "each took the time to read its prompt"


def test_a_cache_that_counts_nothing_is_seen_where_prompts_may_come_again(tmp_path: Path, node_python: Path) -> None:
    run = FakeRun(tmp_path, suite=suite(LOAD, PROMPTS))
    code, said = run.finish(node_python, "caches", FAKE_ENGINE_TOKEN_S="0.005")
    assert code == 0, said
    for step in ("load", "prompts"):
        verdicts = run.rows(step, "verdicts")
        assert verdicts and all("prefix_cache_hit" in row["reasons"] for row in verdicts)
    loaded = run.rows("load", "load_requests")
    assert min(row["ttft_ms"] for row in loaded) > 350, "a warm-up sends none of a window's prompts"


@pytest.mark.parametrize("step", ["throughput", "load"])
@pytest.mark.parametrize(("lie", "after"), [("dies_midway", "0"), ("dies_later", "6")])
def test_an_engine_that_dies_half_way_leaves_a_cause_and_no_rate(
    tmp_path: Path, node_python: Path, step: str, lie: str, after: str
) -> None:
    run = FakeRun(tmp_path, suite=suite(THROUGHPUT if step == "throughput" else LOAD))
    code, said = run.finish(node_python, lie, FAKE_ENGINE_AFTER=after)
    assert code == 1, said
    [attempt] = run.attempts()
    assert attempt.outcome == "failed" and "the fake engine dies on purpose" in attempt.reason
    assert run.ledger.read_commit(run.key, step) is None


def test_an_engine_that_says_no_usage_is_not_measured(tmp_path: Path, node_python: Path) -> None:
    for name, said in (("throughput", "no chat completion with its usage"), ("load", "a stream without usage")):
        folder = tmp_path / name
        folder.mkdir()
        run = FakeRun(folder, suite=suite(THROUGHPUT if name == "throughput" else LOAD))
        assert run.finish(node_python, "no_usage")[0] == 1
        assert said in run.attempts()[0].reason
        assert run.ledger.read_commit(run.key, name) is None


@pytest.mark.parametrize("jump_s", [-3600, 3600])
def test_a_wall_clock_that_jumps_changes_no_figure(tmp_path: Path, node_python: Path, jump_s: int) -> None:
    run = FakeRun(tmp_path, suite=suite(THROUGHPUT))
    jumped = tmp_path / "jumped"
    clock = {
        "PYTHONPATH": f"{ROOT / 'tests' / 'tasks' / 'jumping_clock'}:{ROOT}",
        "FAKE_CLOCK_FILE": str(jumped),
        "FAKE_CLOCK_JUMP_S": str(jump_s),
    }
    runner = run.start(node_python, FAKE_ENGINE_TOKEN_S="0.005", **clock)
    parts = tmp_path / f"store/runs/r1/cells/{run.key}/steps/throughput/parts"
    wait_until(lambda: list(parts.glob("windows-*")), "a finished window")
    jumped.touch()
    said, _ = runner.communicate(timeout=180)
    assert runner.returncode == 0, said
    [attempt] = run.attempts()
    commit, windows = run.commit("throughput"), run.rows("throughput", "windows")
    assert attempt.wall_s is not None and 0 < attempt.wall_s < 600
    assert all(0 < row["wall_s"] < 600 for row in windows)
    assert all(part.spent_s is not None and 0 <= part.spent_s < 600 for part in commit.parts)
    moments = [moment_s(row["measured_at"]) for row in windows] + [moment_s(commit.committed_at)]
    assert all(0 <= later - earlier < 600 for earlier, later in pairwise(moments)), "in the order of their measuring"


def test_an_engine_that_fails_in_smoke_fails_the_attempt(tmp_path: Path, node_python: Path) -> None:
    run = FakeRun(tmp_path, suite=suite("  - {step: smoke, items: 5}", THROUGHPUT))
    assert run.finish(node_python, "error")[0] == 1
    assert "HTTP 500" in run.attempts()[0].reason
    assert run.ledger.read_commit(run.key, "smoke") is None
