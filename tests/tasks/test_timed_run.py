"""The timed steps and the needle through the whole node runner, against a FAKE engine: killed, continued, lied to."""

import asyncio
import hashlib
from collections import Counter
from pathlib import Path

import pytest

from tasks.client import CLIENT_VERSION
from tasks.prompts import paragraphs_here
from tasks.sandbox.run import why_no_sandbox
from tasks.steps.needle import NoRoom, first_number, haystack, last_number, needle_of
from tests.busy_machine import KEPT_WAITING
from tests.fake_run import FakeRun
from tests.tasks.test_cell import kill, wait_until

SMOKE = "  - {step: smoke, items: 5}\n"
THROUGHPUT = """
  - step: throughput
    prompts: prose
    conditions:
      - {name: short, context_tokens: 64, output_tokens: 96, repeats: 2, stream_requests: 0, natural: true}
"""
LOAD = "  - {step: load, dataset: twin, requests_per_category: 2, concurrencies: [1, 2], max_tokens: 32}\n"
SCHEDULE = "  - {step: load, dataset: twin, requests_per_category: 2, rates: [20], max_tokens: 32}\n"
DEPTH = """
  - {step: depth, prompts: prose, depths: [0, 256], pp_tokens: 128, tg_tokens: 64, repeats: 2, peak_window_s: 0.1}
"""
LONG_RUNS = """
  - {step: depth, prompts: prose, depths: [0, 128, 256, 384], pp_tokens: 128, tg_tokens: 256, repeats: 1, warmup: 0,
     concurrencies: [2]}
"""
"""Each of a depth's verdicts is of one run of seconds, so that a neighbour who takes the processor can't spoil all."""

PROMPTS = """
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
TABLES = {"throughput": "windows", "load": "load_windows", "depth": "depth_windows", "prompts": "prompt_windows"}


def suite(*steps: str) -> str:
    return f"name: fake-suite\nsteps:\n{''.join(steps)}"


def measured(run: FakeRun, python: Path, lie: str = "honest", token_s: str = "0.004") -> FakeRun:
    run.measured(python, lie, FAKE_ENGINE_TOKEN_S=token_s)
    return run


def is_ok(run: FakeRun, step: str) -> None:
    """Beside whatever else this machine does: of windows of a tenth of a second the client may say that it waited."""
    assert set(run.commit(step).reasons) <= KEPT_WAITING, run.rows(step, "verdicts")
    windows = run.rows(step, TABLES[step])
    assert all(row["completion_tokens"] == row["engine_generation_tokens"] for row in windows)


@pytest.mark.slow(3)
def test_a_suite_and_depths_are_measured_through_the_runner_and_committed(tmp_path: Path, node_python: Path) -> None:
    run = measured(FakeRun(tmp_path, "mtp", suite=suite(SMOKE, LOAD, DEPTH)), node_python)
    for step in ("load", "depth"):
        is_ok(run, step)
    requests = run.rows("load", "load_requests")
    assert Counter(row["concurrency"] for row in requests) == {1: 22, 2: 22}
    assert {row["finish_reason"] for row in requests} == {"stop"}
    assert all(row["ttft_ms"] for row in requests)
    timed = [row for row in requests if row["tpot_ms"] and row["chunk_ms"]]  # what a waiting client read at once isn't
    assert len(timed) > len(requests) / 2
    assert run.rows("load", "provenance")[-1]["dataset_revision"] == "twin-1"
    windows = run.rows("depth", "depth_windows")
    assert Counter(row["depth_tokens"] for row in windows) == {0: 2, 256: 2}
    for row in windows:
        assert row["completion_tokens"] == 64
        assert row["prompt_tokens"] == pytest.approx(row["depth_tokens"] + 128, abs=1)
        assert row["prefill_s"] and row["decode_s"] and row["peak_tok_s"] and row["door_ms"]
    modes = [(row["condition"], row["mode"]) for row in run.rows("depth", "verdicts")]
    assert modes == [("pp128", "prefill"), ("tg64", "decode"), ("pp128 @ d256", "prefill"), ("tg64 @ d256", "decode")]


@pytest.mark.slow(5)
def test_a_schedule_and_natural_answers_are_measured_through_the_runner(tmp_path: Path, node_python: Path) -> None:
    run = measured(FakeRun(tmp_path, "mtp", suite=suite(THROUGHPUT, SCHEDULE)), node_python)
    is_ok(run, "load")
    requests, [window] = run.rows("load", "load_requests"), run.rows("load", "load_windows")
    assert len(requests) == 22 and {row["mode"] for row in requests} == {"open"}
    assert all(row["sent_s"] >= row["due_s"] for row in requests), "nothing is sent before it is due"
    assert (window["condition"], window["rate_s"], window["arrival"]) == ("load 20/s", 20.0, "poisson")
    windows = run.rows("throughput", "windows")
    assert [(row["mode"], row["completion_tokens"]) for row in windows] == [
        ("fixed", 96), ("fixed", 96), ("natural", 12), ("natural", 12),
    ]  # fmt: skip
    assert not {"short_output", "token_mismatch", "blank_output"} & set(run.commit("throughput").reasons)
    assert run.rows("throughput", "provenance")[-1]["client_version"] == CLIENT_VERSION


@pytest.mark.parametrize(
    ("lie", "technique", "program"),
    [
        ("honest", "mtp", ("correct", "all of 2 cases")),
        pytest.param("wrong_program", "ar", ("wrong", "case 1: printed '7', right is '6'"), marks=pytest.mark.slow(4)),
    ],
)
def test_programs_in_answers_are_run_and_a_wrong_one_is_a_result_and_no_fault(
    tmp_path: Path, node_python: Path, lie: str, technique: str, program: tuple[str, str]
) -> None:
    if (missing := why_no_sandbox()) is not None:
        pytest.skip(missing)
    run = measured(FakeRun(tmp_path, technique, suite=suite(SMOKE, PROMPTS)), node_python, lie)
    is_ok(run, "prompts")
    windows = Counter(row["condition"] for row in run.rows("prompts", "prompt_windows"))
    assert windows == dict.fromkeys(("qa c=1", "qa c=2", "code c=1", "code c=2"), 3)
    requests = run.rows("prompts", "prompt_requests")
    assert Counter((row["workload"], row["program"], row["program_reason"]) for row in requests) == {
        ("qa", None, None): 9, ("code", *program): 9,
    }  # fmt: skip


@pytest.mark.slow(3)
def test_a_killed_runner_keeps_what_was_finished_and_measures_the_rest_whole(tmp_path: Path, node_python: Path) -> None:
    run = FakeRun(tmp_path, suite=suite(SMOKE, PROMPTS))
    started = run.start(node_python, FAKE_ENGINE_TOKEN_S="0.02")
    wait_until(lambda: len(run.stored("prompts/parts/prompt_windows-*")) >= 4, "windows of the first attempt")
    kill(started)
    windows = measured(run, node_python).rows("prompts", "prompt_windows")
    first, last = ([row["attempt"] for row in windows if row["condition"] == name] for name in ("qa c=1", "code c=2"))
    assert first == [1] * 3, "what was finished is not measured again"
    assert last.count(2) == 3, "one start of the engine is in a figure"


@pytest.mark.parametrize(
    ("step", "steps", "lie", "reason"),
    [
        ("load", LOAD, "bursts", "stream_burst"),
        pytest.param("depth", LONG_RUNS, "bursts", "stream_burst", marks=pytest.mark.slow(5)),
        pytest.param("depth", LONG_RUNS, "short", "short_output", marks=pytest.mark.slow(5)),
    ],
)
def test_an_engine_that_lies_is_rejected_in_every_condition(
    tmp_path: Path, node_python: Path, step: str, steps: str, lie: str, reason: str
) -> None:
    run = measured(FakeRun(tmp_path, suite=suite(steps)), node_python, lie, "0.01" if lie == "bursts" else "0.004")
    verdicts = run.rows(step, "verdicts")
    assert len(verdicts) == {"load": 2 * 12, "depth": 2 * 4}[step]
    # beside busy neighbours a client may have waited in all of them: then it accuses nobody of bursts
    told = [row for row in verdicts if lie != "bursts" or "client_starved" not in row["reasons"]]
    assert {row["verdict"] for row in told} <= {"rejected"} and "ok" not in {row["verdict"] for row in verdicts}
    assert all(reason in row["reasons"] for row in told)


class FakeTokenizer:
    """Three letters a token, and a chat template of 11; it counts how often it is asked."""

    def __init__(self) -> None:
        self.asked = 0

    async def count(self, text: str) -> int:
        self.asked += 1
        return 11 + sum(-(-len(word) // 3) for word in text.split())


@pytest.mark.parametrize("depth", [0, 10, 50, 90, 100])
@pytest.mark.parametrize("tokens", [256, 4096, 100_000])
def test_a_prompt_has_the_asked_length_and_its_needle_at_the_asked_depth(tokens: int, depth: int) -> None:
    tokenizer, needle = FakeTokenizer(), needle_of(tokens, depth, 0)
    made = asyncio.run(haystack(needle, tokens, depth, 0, paragraphs_here(), tokenizer.count))
    assert made.prompt_tokens == asyncio.run(FakeTokenizer().count(made.text))
    assert tokens - max(0.005 * tokens, 8) <= made.prompt_tokens <= tokens, "to 0.5 % or to a word"
    before, after = made.text.split(needle.sentence)
    assert made.depth_tokens == asyncio.run(FakeTokenizer().count(before)) - 11
    assert after.endswith(needle.question)
    last_place = tokens - asyncio.run(FakeTokenizer().count(f"{needle.sentence} {needle.question}"))
    assert abs(made.depth_tokens - min(depth / 100 * tokens, last_place)) <= max(0.005 * tokens, 8)
    assert tokenizer.asked <= 16


def test_the_same_needle_is_made_everywhere_and_one_without_room_is_one_line() -> None:
    needle, prose, count = needle_of(512, 50, 0), paragraphs_here(), FakeTokenizer().count
    made = [asyncio.run(haystack(needle, 512, 50, seed, prose, count)) for seed in (0, 0, 1)]
    assert made[0] == made[1] != made[2]
    with pytest.raises(NoRoom, match="context_tokens 20 is too short"):
        asyncio.run(haystack(needle_of(20, 50, 0), 20, 50, 0, paragraphs_here(), FakeTokenizer().count))


@pytest.mark.parametrize(
    ("body", "number"),
    [
        ("The secret number of Lisbon is 4829173.", "4829173"),
        ("Oslo has 1111111, but Lisbon has **4,829,173**.", "4829173"),
        ("4\u202f829\u202f173", "4829173"),
        ("<think>4829173 or 5?</think>It is 4829174", "4829174"),
        ("<think>cut off at 4829173", None),
        ("I don't know", None),
        ("", None),
    ],
)
def test_the_last_number_of_the_body_is_the_answer(body: str, number: str | None) -> None:
    assert last_number(body) == number


def test_a_base_model_is_given_the_needle_again_as_far_as_its_number_which_it_writes_first() -> None:
    needle = needle_of(512, 50, 0, chat=False)
    assert f"{needle.question} {needle.number}." == needle.sentence and needle.number == needle_of(512, 50, 0).number
    assert first_number(f" {needle.number}. The secret number of Oslo is 7654321.") == needle.number
    assert first_number(" unknown.") is None


SUITE = """
name: fake-suite
steps:
  - {step: smoke}
  - {step: needle, context_tokens: [512, 1500], seeds: 3, max_tokens: 256}
"""

PLACES = {(tokens, depth, seed) for tokens in (512, 1500) for depth in (10, 50, 90) for seed in range(3)}


def test_every_length_and_depth_is_met_as_the_engine_counts(tmp_path: Path, node_python: Path) -> None:
    run = FakeRun(tmp_path, suite=SUITE)
    run.measured(node_python)
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
    run.measured(node_python, "forgets_late")
    found = Counter(row["depth_percent"] for row in run.rows("needle", "needles") if row["correct"])
    assert found == {10: 6, 50: 6}
    assert run.commit("needle").verdict == "ok"


def test_an_engine_that_answers_nothing_is_stopped_by_one_short_needle(tmp_path: Path, node_python: Path) -> None:
    run = FakeRun(tmp_path, suite=SUITE)
    assert run.finish(node_python, "sane_but_blank")[0] == 3
    assert run.commit("smoke").reasons == ("blank_output",)
    assert [row["context_tokens"] for row in run.rows("smoke", "needles")] == [512]


def test_a_killed_runner_asks_for_no_answered_needle_again(tmp_path: Path, node_python: Path) -> None:
    run = FakeRun(tmp_path, suite=SUITE)
    first = run.start(node_python, FAKE_ENGINE_TOKEN_S="0.02")
    wait_until(lambda: len(run.stored("needle/parts/needles-*")) >= 2, "two answers")
    kill(first)
    run.measured(node_python)
    rows = run.rows("needle", "needles")
    assert Counter((row["context_tokens"], row["depth_percent"], row["seed"]) for row in rows) == Counter(PLACES)
    asked = Counter(hashlib.sha256(prompt.encode()).hexdigest()[:16] for prompt in run.prompts_sent())
    kept = [row["prompt_hash"] for row in rows if row["attempt"] == 1]
    assert len(kept) >= 2 and {asked[prompt] for prompt in kept} == {1}
