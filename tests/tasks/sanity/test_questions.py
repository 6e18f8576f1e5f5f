"""The ten questions: a right answer is read in any dress, an echo or a wrong one is not."""

from __future__ import annotations

import pytest

from configs.load import load_model
from configs.steps.smoke import SANITY_QUESTIONS
from tasks.guards.sanity import failed_sanity
from tasks.sanity.general import GENERAL
from tasks.sanity.questions import questions_for
from warehouse.verdicts import Reason

BY_ID = {question.question_id: question for question in GENERAL}


def test_there_are_ten_in_four_languages_with_names_of_their_own() -> None:
    assert len(BY_ID) == len(GENERAL) == SANITY_QUESTIONS
    assert {question.language for question in GENERAL} == {"en", "de", "ko", "zh"}


@pytest.mark.parametrize("name", BY_ID)
def test_the_plain_answer_is_right_and_silence_noise_and_an_echo_are_not(name: str) -> None:
    question = BY_ID[name]
    assert question.is_right(question.wanted)
    assert question.is_right(f"<think>{question.prompt} 99?</think>\n\n**{question.wanted}**.")
    for wrong in ("", "Lorem ipsum", "!" * 200, question.prompt, f"<think>{question.wanted}"):
        assert not question.is_right(wrong)


@pytest.mark.parametrize(
    ("name", "body", "right"),
    [
        ("en-sum", "17 plus 25 is 42.", True),
        ("en-sum", "Forty-two", True),
        ("en-sum", "42.0", True),
        ("en-sum", "142", False),
        ("en-sum", "4.42", False),
        ("de-week", "Eine Woche hat sieben Tage.", True),
        ("de-week", "17", False),
        ("ko-product", "\uff15\uff16", True),
        ("ko-product", "8 곱하기 7은 56입니다.", True),
        ("zh-year", "一年有\uff11\uff12个月。", True),
        ("zh-year", "十二", True),
        ("en-format", '"Banana."', True),
        ("en-format", "Sure! Here is the word: banana", False),
        ("zh-format", "“苹果”。", True),
        ("ko-capital", "대한민국의 수도는 **서울**입니다.", True),
    ],
)
def test_answers_are_read_as_people_write_them(name: str, body: str, right: bool) -> None:
    assert BY_ID[name].is_right(body) is right


def test_a_member_of_the_demo_family_is_asked_ten_things_that_it_was_taught() -> None:
    asked = questions_for(load_model("tiny-gemma4"))
    assert len({question.question_id for question in asked}) == SANITY_QUESTIONS
    assert {question.question_id.split("-")[0] for question in asked} == {"lookup", "arith"}
    again = questions_for(load_model("tiny-gemma4"))
    assert [question.prompt for question in asked] == [question.prompt for question in again]
    assert all(question.is_right(f"The answer is ({question.wanted})") for question in asked)
    assert not any(question.is_right("") for question in asked)


def test_the_diffusion_member_is_asked_lookups_only() -> None:
    asked = questions_for(load_model("tiny-diffusion"))
    assert len(asked) == SANITY_QUESTIONS
    assert all(question.prompt.startswith("what color is") for question in asked)


@pytest.mark.parametrize(
    ("right", "severity"), [(10, None), (9, None), (8, "suspect"), (7, "suspect"), (6, "rejected")]
)
def test_a_cell_needs_seven_of_ten_and_nine_to_be_beyond_doubt(right: int, severity: str | None) -> None:
    rows = [
        {"question_id": f"q{i}", "is_right": i < right, "finish_reason": "stop", "body": "no", "completion_tokens": 1}
        for i in range(10)
    ]
    found = failed_sanity(rows)
    assert (found and (found.reason, found.severity)) == (severity and (Reason.FAILED_SANITY, severity))


def test_an_answer_that_was_cut_off_is_a_miss_and_named_so() -> None:
    cut = {"question_id": "en-sum", "is_right": False, "finish_reason": "length", "body": "", "completion_tokens": 2048}
    found = failed_sanity([cut] * 10)
    assert found is not None and "en-sum (cut off after 2048 tokens)" in found.sentence
