"""The task as text."""

import random
import subprocess
import sys

import pytest

from configs.checkout import ROOT
from tasks.family import words


def test_questions_follow_from_the_seed_and_are_different_and_of_both_kinds() -> None:
    drawn = words.questions(200, seed=0)
    assert drawn == words.questions(200, seed=0) != words.questions(200, seed=2)
    assert len({question.prompt for question in drawn}) == 200
    assert [question.kind for question in drawn[:4]] == ["lookup", "arith", "lookup", "arith"]
    assert {question.answer for question in drawn} == set("ABCD")


def test_item_id_belongs_to_the_prompt() -> None:
    drawn = [question for seed in range(5) for question in words.questions(100, seed)]
    assert len({q.item_id for q in drawn}) == len({q.prompt for q in drawn})
    assert words.questions(1, seed=7)[0].item_id == words.questions(9, seed=7)[0].item_id


def test_the_answer_letter_marks_the_right_option() -> None:
    for question in words.questions(100, seed=3):
        tokens = question.prompt.split()
        value = tokens[tokens.index(f"({question.answer})") - 1]
        expected = words.COLOR_OF[tokens[3]] if question.kind == "lookup" else str(int(tokens[2]) + int(tokens[4]))
        assert value == expected


def test_thinking_names_a_first_letter_that_says_nothing() -> None:
    drawn = words.questions(400, seed=4)
    assert all("maybe (A) ?" in words.worked_answer(question, thinking=True) for question in drawn)
    assert 0.15 < sum(question.answer == "A" for question in drawn) / len(drawn) < 0.35


@pytest.mark.parametrize(("context_tokens", "output_tokens"), [(0, 256), (200, 256), (512, 256), (1500, 256), (0, 400)])
def test_listing_prompts_are_fresh_and_as_long_as_asked(context_tokens: int, output_tokens: int) -> None:
    prompts = [words.listing_prompt(seed, context_tokens, output_tokens) for seed in range(50)]
    assert len(set(prompts)) == 50
    assert prompts[0] == words.listing_prompt(0, context_tokens, output_tokens)
    shortest = words.CHAT_TOKENS + 2 + 2 * (output_tokens // 4 + words.SPARE_ITEMS)
    assert all(len(p.split()) + words.CHAT_TOKENS == max(context_tokens, shortest) for p in prompts)


def test_a_listing_answer_never_repeats_four_words() -> None:
    answer = words.draw_listing(random.Random(0), items=104, filler_words=0).answer.split()
    fours = list(zip(*(answer[shift:] for shift in range(4)), strict=False))
    assert len(answer) == 416
    assert len(set(fours)) == len(fours)


def test_more_than_there_is_is_an_error() -> None:
    with pytest.raises(ValueError, match="at most"):
        words.questions(words.MOST_QUESTIONS + 1, seed=0)
    with pytest.raises(ValueError, match="output_tokens"):
        words.listing_prompt(0, 0, words.LONGEST_OUTPUT_TOKENS + 1)


def test_what_starts_a_training_needs_the_standard_library_only() -> None:
    code = (
        "import sys; sys.modules.update(torch=None, transformers=None, tokenizers=None)\n"
        "import tasks.family.words, tasks.family.members, tasks.family.training.build, tasks.family.interpreter\n"
        "print(tasks.family.members.recipe_hash())"
    )
    command = [sys.executable, "-S", "-c", code]
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=30)
    assert result.returncode == 0, result.stderr
    assert len(result.stdout.strip()) == 16
