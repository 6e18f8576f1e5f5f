"""Texts cut to a length by a tokenizer that nobody knows, and answers as models write them."""

from __future__ import annotations

import asyncio

import pytest

from tasks.haystack import NoRoom, haystack, last_number, needle_of
from tasks.prompts import paragraphs_here


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


def test_the_same_needle_is_made_everywhere_and_another_seed_has_another_text() -> None:
    needle, prose, count = needle_of(512, 50, 0), paragraphs_here(), FakeTokenizer().count
    made = [asyncio.run(haystack(needle, 512, 50, seed, prose, count)) for seed in (0, 0, 1)]
    assert made[0] == made[1] != made[2]


def test_a_length_without_room_for_the_question_is_one_line() -> None:
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
