"""The ten questions: a right answer is read in any dress, an echo or a wrong one is not."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import pytest

from configs.load import load_model
from configs.steps.smoke import SANITY_QUESTIONS
from tasks.guards.answers import cut_off_sanity, failed_sanity
from tasks.sanity_questions import GENERAL, questions_for
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


GENERAL_LANGUAGES = ("en",) * 4 + ("de", "de", "ko", "ko", "zh", "zh")


def answers(
    wrong: Collection[int], cut: Collection[int] = (), languages: tuple[str, ...] = GENERAL_LANGUAGES
) -> list[dict[str, Any]]:
    return [
        {
            "question_id": f"q{i}",
            "language": language,
            "is_right": i not in {*wrong, *cut},
            "finish_reason": "length" if i in cut else "stop",
            "body": "no",
            "completion_tokens": 2048,
        }
        for i, language in enumerate(languages)
    ]


@pytest.mark.parametrize(
    ("wrong", "cut", "severity"),
    [
        ((), (), None),
        ((0,), (), None),
        ((9,), (), None),
        ((0, 9), (), "suspect"),
        ((4, 5, 6, 7, 8, 9), (), "suspect"),  # knows English alone
        ((0, 1), (), "suspect"),
        ((0, 1, 2), (), "rejected"),
        ((0, 4, 5, 6, 7, 8, 9), (), "rejected"),
        ((), (0, 1, 2), None),
        ((0,), (1, 2, 3), None),  # unknown is not wrong
        ((0, 1), (2, 3), "suspect"),
        ((0, 1, 2), (3,), "rejected"),
    ],
)
def test_a_cell_is_rejected_for_answers_that_ended_and_are_wrong(
    wrong: tuple[int, ...], cut: tuple[int, ...], severity: str | None
) -> None:
    found = failed_sanity(answers(wrong, cut))
    assert (found and (found.reason, found.severity)) == (severity and (Reason.FAILED_SANITY, severity))
    assert cut_off_sanity(answers(wrong, cut)) is None


@pytest.mark.parametrize(("wrong", "severity"), [(1, None), (2, "suspect"), (3, "suspect"), (4, "rejected")])
def test_of_what_it_was_taught_a_member_of_the_family_needs_seven(wrong: int, severity: str | None) -> None:
    found = failed_sanity(answers(range(wrong), languages=("demo",) * 10))
    assert (found and found.severity) == severity
    babbling = failed_sanity(answers((), range(wrong), languages=("demo",) * 10))
    assert (babbling and babbling.severity) == severity, "it has no thinking to be cut off in"


def test_a_model_that_thinks_too_long_is_suspect_and_not_wrong() -> None:
    rows = answers((), range(4))
    found = cut_off_sanity(rows)
    assert found is not None and found.severity == "suspect" and "q0 (cut off after 2048 tokens)" in found.sentence
    assert "4 of 10" in found.sentence and failed_sanity(rows) is None
