"""The needle step: texts cut to a length by an unknown tokenizer, and the step whole."""

import asyncio
import hashlib
from collections import Counter
from pathlib import Path

import pytest

from tasks.prompts import paragraphs_here
from tasks.steps.needle import NoRoom, haystack, last_number, needle_of
from tests.fake_run import FakeRun
from tests.tasks.test_cell import wait_until


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
    assert run.finish(node_python, "blank")[0] == 3
    assert run.commit("smoke").reasons == ("blank_output", "failed_sanity")
    assert [row["context_tokens"] for row in run.rows("smoke", "needles")] == [512]


def test_a_killed_runner_asks_for_no_answered_needle_again(tmp_path: Path, node_python: Path) -> None:
    run = FakeRun(tmp_path, suite=SUITE)
    first = run.start(node_python, FAKE_ENGINE_TOKEN_S="0.02")
    wait_until(lambda: len(run.stored("needle/parts/needles-*")) >= 2, "two answers")
    first.kill()
    first.communicate(timeout=240)
    run.measured(node_python)
    rows = run.rows("needle", "needles")
    assert Counter((row["context_tokens"], row["depth_percent"], row["seed"]) for row in rows) == Counter(PLACES)
    asked = Counter(hashlib.sha256(prompt.encode()).hexdigest()[:16] for prompt in run.prompts_sent())
    kept = [row["prompt_hash"] for row in rows if row["attempt"] == 1]
    assert len(kept) >= 2 and {asked[prompt] for prompt in kept} == {1}
