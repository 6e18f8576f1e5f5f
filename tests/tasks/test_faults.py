"""Each fault of docs/guards.md that an engine or a client can have, planted beside a real HTTP server and runner."""

from itertools import pairwise
from math import ceil
from pathlib import Path

import pytest

from configs.checkout import ROOT
from tasks.guards.steadiness import DELIVERED_BOUND
from tests.busy_machine import KEPT_WAITING, PATIENCE_S
from tests.fake_run import FakeRun
from tests.tasks.test_cell import processes_with, wait_until
from warehouse.ledger.clock import moment_s

THROUGHPUT = """
  - step: throughput
    prompts: prose
    conditions:
      - {name: short c=1, context_tokens: 64, output_tokens: 32, repeats: 3, requests: 5}
"""
LOAD = "  - {step: load, dataset: twin, requests_per_category: 2, concurrencies: [2], max_tokens: 32}"
DEPTH = """
  - {step: depth, prompts: prose, depths: [0], pp_tokens: 64, tg_tokens: 32, repeats: 4, concurrencies: [4],
     peak_window_s: 0.02}
"""
PROMPTS = """
  - step: prompts
    concurrencies: [4]
    repeats: 4
    workloads: [{name: qa, language: English, prompt: "What is this?", max_tokens: 32}]
"""
STEPS = {"throughput": THROUGHPUT, "load": LOAD, "depth": DEPTH, "prompts": PROMPTS}
"""The four steps that tell speeds. Each sends twenty timed requests or more, so that one in twenty hits all of them."""

STREAMED = {"throughput": THROUGHPUT, "load": LOAD, "depth": DEPTH}


def suite(*steps: str) -> str:
    """Without smoke, which would stop most of these before a speed is measured."""
    return "\n".join(["name: fake-suite", "steps:", *(step.strip("\n") for step in steps)])


K = 2
"""Tokens that `mtp2` drafts. Of 31 tokens all but the first are whole steps, of a load's 12 all but one of them."""

QUIET_S = 3.0
"""A fake engine on a busy machine answers within it, and one that dribbles sends less than 64 bytes."""


@pytest.mark.slow(6)
@pytest.mark.parametrize(
    ("lie", "technique", "severity", "reason", "steps"),
    [
        ("counts_chunks", "ar", "rejected", "token_mismatch", STREAMED),
        ("miscount", "ar", "rejected", "token_mismatch", STEPS),
        ("usage_high", "ar", "rejected", "token_mismatch", STEPS),
        ("usage_low", "ar", "rejected", "token_mismatch", STEPS),
        ("says_less", "ar", "rejected", "token_mismatch", STEPS),
        ("reads_less", "ar", "suspect", "prompt_length", STREAMED),
        ("cache_hits", "ar", "rejected", "prefix_cache_hit", STEPS),
        ("cached_usage", "ar", "rejected", "prefix_cache_hit", STEPS),
        ("preempts", "ar", "suspect", "engine_preemption", STEPS),
        ("slow_clock", "ar", "suspect", "clock_mismatch", STEPS),
        ("some_errors", "ar", "rejected", "request_failed", STEPS),
        ("cuts", "ar", "rejected", "request_failed", STEPS),
        ("dead_draft", "mtp", "rejected", "dead_draft", STEPS),
        ("drafts_apart", "mtp", "rejected", "acceptance_mismatch", STEPS),
        ("drafts_secretly", "ar", "rejected", "baseline_drafts", STEPS),
    ],
)
def test_a_fault_is_caught_by_its_code_in_every_timed_step(
    tmp_path: Path, node_python: Path, lie: str, technique: str, severity: str, reason: str, steps: dict[str, str]
) -> None:
    run = FakeRun(tmp_path, technique, suite=suite(*steps.values()))
    run.measured(node_python, lie)
    for step in steps:
        told = [row for row in run.rows(step, "verdicts") if reason in row["reasons"]]
        assert told, (step, run.rows(step, "verdicts"))
        # what is only suspect may be worse for another reason, on a busy machine
        assert all(severity == "suspect" or row["verdict"] == "rejected" for row in told)
        assert all(row["verdict"] != "ok" and all(row["details"]) for row in told)


@pytest.mark.slow(6)
def test_steps_of_k_and_one_tokens_that_are_counted_as_one_token_are_rejected_in_every_stream(
    tmp_path: Path, node_python: Path
) -> None:
    """Bursts under-counted by K: a draft's step comes in one chunk, and usage takes a chunk for a token."""
    run = FakeRun(tmp_path, "mtp2", suite=suite(*STREAMED.values()).replace("32", "31"))
    run.measured(node_python, "counts_chunks")
    for step, table in (("throughput", "windows"), ("load", "load_windows"), ("depth", "depth_windows")):
        streamed = [row for row in run.rows(step, table) if row.get("mode") != "fixed"]
        assert streamed
        for row in streamed:
            # behind each answer's first token, which has a chunk of its own
            made, told = (row[name] - row["requests"] for name in ("engine_generation_tokens", "completion_tokens"))
            per_answer = made / row["requests"]
            assert told == row["requests"] * ceil(per_answer / (K + 1)), row
            assert per_answer % (K + 1) or made == (K + 1) * told, "three times too few"
        judged = [row for row in run.rows(step, "verdicts") if row["mode"] != "fixed"]
        assert judged and all("token_mismatch" in row["reasons"] for row in judged)
        assert {row["verdict"] for row in judged} == {"rejected"}


@pytest.mark.parametrize(
    ("lie", "first_chunk"),
    [
        pytest.param("hides_first", 4, marks=pytest.mark.slow(7)),
        pytest.param("holds_back", 1, marks=pytest.mark.slow(15)),  # its rate is true: the engine's own clock tells
    ],
)
def test_first_tokens_that_are_not_sent_as_they_are_made_are_seen(
    tmp_path: Path, node_python: Path, lie: str, first_chunk: int
) -> None:
    """A client that slept says so instead: what it heard late is no fault of the engine's."""
    run = FakeRun(tmp_path, suite=suite(*STREAMED.values()))
    run.measured(node_python, lie, **({"FAKE_ENGINE_TOKEN_S": "0.01"} if lie == "hides_first" else {}))
    for step, table in (("throughput", "requests"), ("load", "load_requests"), ("depth", "depth_requests")):
        first = [row["first_chunk_tokens"] for row in run.rows(step, table) if row["first_chunk_tokens"]]
        assert first and min(first) == first_chunk
        streamed = [row for row in run.rows(step, "verdicts") if row["mode"] != "fixed"]
        assert streamed and all({"late_first_token", "client_starved"} & {*row["reasons"]} for row in streamed)


@pytest.mark.slow(8)
def test_nothing_of_it_fires_on_a_healthy_engine(tmp_path: Path, node_python: Path) -> None:
    run = FakeRun(tmp_path, "mtp", suite=suite(*STEPS.values()))
    run.measured(node_python, FAKE_ENGINE_TOKEN_S="0.01")
    for step in STEPS:
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


@pytest.mark.slow(6)
def test_a_cache_that_counts_nothing_can_not_help_prompts_that_never_repeat(tmp_path: Path, node_python: Path) -> None:
    run = FakeRun(tmp_path, suite=suite(THROUGHPUT))
    run.measured(node_python, "caches", FAKE_ENGINE_TOKEN_S="0.005")
    sent = run.prompts_sent()
    assert len(set(sent)) == len(sent) > 20
    fixed = [row["wall_s"] for row in run.rows("throughput", "requests") if row["mode"] == "fixed"]
    assert min(fixed) > 0.4 + 32 * 0.005, "each took the time to read its prompt"


@pytest.mark.slow(6)
def test_a_cache_that_counts_nothing_is_seen_where_prompts_may_come_again(tmp_path: Path, node_python: Path) -> None:
    run = FakeRun(tmp_path, suite=suite(LOAD, PROMPTS))
    run.measured(node_python, "caches", FAKE_ENGINE_TOKEN_S="0.005")
    for step in ("load", "prompts"):
        verdicts = run.rows(step, "verdicts")
        assert verdicts and all("prefix_cache_hit" in row["reasons"] for row in verdicts)
    loaded = run.rows("load", "load_requests")
    assert min(row["ttft_ms"] for row in loaded) > 350, "a warm-up sends none of a window's prompts"


@pytest.mark.slow(1)
@pytest.mark.parametrize(
    ("lie", "after", "step"),
    [*(("dies_midway", "0", step) for step in STREAMED), *(("dies_later", "6", step) for step in STEPS)],
)
def test_an_engine_that_dies_half_way_leaves_a_cause_and_no_rate(
    tmp_path: Path, node_python: Path, step: str, lie: str, after: str
) -> None:
    run = FakeRun(tmp_path, suite=suite(STEPS[step]))
    code, said = run.finish(node_python, lie, FAKE_ENGINE_AFTER=after)
    assert code == 1, said
    [attempt] = run.attempts()
    assert attempt.outcome == "failed" and "the fake engine dies on purpose" in attempt.reason
    assert run.ledger.read_commit(run.key, step) is None


@pytest.mark.slow(14)
def test_an_engine_that_says_no_usage_is_not_measured(tmp_path: Path, node_python: Path) -> None:
    whole, streamed = "no chat completion with its usage", "a stream without usage"
    for name, said in (("throughput", whole), ("load", streamed), ("depth", streamed), ("prompts", whole)):
        folder = tmp_path / name
        folder.mkdir()
        run = FakeRun(folder, suite=suite(STEPS[name]))
        assert run.finish(node_python, "no_usage")[0] == 1
        assert said in run.attempts()[0].reason
        assert run.ledger.read_commit(run.key, name) is None


PLANTED = {"PYTHONPATH": f"{ROOT / 'tests' / 'tasks' / 'planted'}:{ROOT}"}
"""An environment in which every interpreter first runs the `sitecustomize` there."""


@pytest.mark.slow(4)
@pytest.mark.parametrize(
    ("lie", "step", "said"),
    [
        *(("dribbles", step, "it dribbles") for step in STEPS),
        *(("stalls", step, "its next byte didn't come") for step in ("throughput", "load")),
    ],
)
def test_an_answer_that_never_ends_is_ended_and_leaves_its_cause_and_no_rate(
    tmp_path: Path, node_python: Path, lie: str, step: str, said: str
) -> None:
    """Slow loris. Behind six requests that were answered: a window, or a half of one, may be there already."""
    run = FakeRun(tmp_path, suite=suite(STEPS[step]))
    code, told = run.finish(node_python, lie, FAKE_ENGINE_AFTER="6", FAKE_QUIET_S=f"{QUIET_S:g}", **PLANTED)
    assert code == 1, told
    [attempt] = run.attempts()
    assert attempt.outcome == "failed"
    assert f"no progress for {QUIET_S:g} s: {said}" in attempt.reason
    assert run.ledger.read_commit(run.key, step) is None
    assert processes_with(str(run.counts)) == [], "its engine, which still dribbles, is ended with it"


@pytest.mark.slow(18)
def test_a_client_that_is_held_up_is_never_ok_and_accuses_no_engine(tmp_path: Path, node_python: Path) -> None:
    """Between an answer and the next request it needs a round of its own, which is long beside any answer here."""
    short = "output_tokens: 16, repeats: 2, requests: 8, concurrency: 2"
    throughput = THROUGHPUT.replace("output_tokens: 32, repeats: 3, requests: 5", short)
    run = FakeRun(tmp_path, suite=suite(throughput, LOAD))
    run.measured(node_python, FAKE_ENGINE_TOKEN_S="0.001", FAKE_ROUND_S="0.15", **PLANTED)
    for step, table in (("throughput", "windows"), ("load", "load_windows")):
        assert all(row["delivered_share"] < DELIVERED_BOUND for row in run.rows(step, table))
        judged = run.rows(step, "verdicts")
        assert judged and all("client_limited" in row["reasons"] for row in judged), judged
        assert {row["verdict"] for row in judged} == {"suspect"}, judged
        assert {reason for row in judged for reason in row["reasons"]} <= KEPT_WAITING, judged


@pytest.mark.slow(3)
@pytest.mark.parametrize("jump_s", [-3600, 3600])
def test_a_wall_clock_that_jumps_changes_no_figure(tmp_path: Path, node_python: Path, jump_s: int) -> None:
    run, jumped = FakeRun(tmp_path, suite=suite(THROUGHPUT)), tmp_path / "jumped"
    clock = PLANTED | {"FAKE_CLOCK_FILE": str(jumped), "FAKE_CLOCK_JUMP_S": str(jump_s)}
    runner = run.start(node_python, FAKE_ENGINE_TOKEN_S="0.005", **clock)
    wait_until(lambda: run.stored("throughput/parts/windows-*"), "a finished window")
    jumped.touch()
    said, _ = runner.communicate(timeout=PATIENCE_S)
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
