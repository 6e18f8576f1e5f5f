"""The real lm-eval on the twins, against a fake chat server."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from configs.evals.suites import SuiteName
from tasks.evals.data.shapes import item_of
from tasks.evals.data.twins import twin
from tasks.frameworks.job import Item, Job
from tasks.host.environments import ensure
from tests.fake_chat import FakeChat, fake_chat
from tests.tasks.frameworks.adapter_process import Adapter, adapter

MODULE = "tasks.frameworks.lm_eval_adapter"

SCORER = {
    "gpqa": "exact_match,strict-match",
    "mmlu-pro": "exact_match,custom-extract",
    "ifeval": "prompt_level_strict_acc,none",
}


@pytest.fixture(scope="module")
def lm_eval(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Adapter]:
    with adapter(ensure("lm-eval"), MODULE, tmp_path_factory.mktemp("lm-eval")) as served:
        yield served


@pytest.fixture
def chat() -> Iterator[FakeChat]:
    with fake_chat() as chat:
        yield chat


def items_of(suite: SuiteName, n: int = 24, *, plain: bool = True) -> tuple[Item, ...]:
    return tuple(item_of(suite, record, "", plain=plain) for record in twin(suite)[:n])


def ask(suite: SuiteName, chat: FakeChat, items: tuple[Item, ...], *, plain: bool = True, at_once: int = 8) -> Job:
    return Job("ask", suite, items, chat.base_url, "m", 64, at_once, plain, workdir=".")


def ifeval_item(name: str, **arguments: Any) -> Item:
    record = {"key": 1, "prompt": "Say it.", "instruction_id_list": [name], "kwargs": [arguments]}
    return item_of("ifeval", record, "", plain=False)


@pytest.mark.parametrize("at_once", [8, 1])
@pytest.mark.parametrize("suite", SCORER)
def test_every_item_is_asked_once_and_gets_its_own_answer(
    suite: SuiteName, at_once: int, lm_eval: Adapter, chat: FakeChat
) -> None:
    items = items_of(suite)
    result = lm_eval.run(ask(suite, chat, items, at_once=at_once))
    assert result.error is None
    assert [sample.item_id for sample in result.samples] == [item.item_id for item in items]
    assert [sample.messages for sample in result.samples] == [[{"role": "user", "content": i.question}] for i in items]
    assert all(sample.correct for sample in result.samples)
    if suite != "ifeval":
        assert [sample.response for sample in result.samples] == [f"The answer is ({item.gold})" for item in items]
    assert {score.metric: score.value for score in result.scores}[SCORER[suite]] == 1.0
    assert sorted(body["messages"][0]["content"] for body in chat.asked) == sorted(i.question for i in items)


def test_nothing_is_said_about_sampling_and_no_stop_string_is_sent(lm_eval: Adapter, chat: FakeChat) -> None:
    for suite in ("gpqa", "mmlu-pro", "ifeval"):
        lm_eval.run(ask(suite, chat, items_of(suite, 3)))
    assert {tuple(sorted(body)) for body in chat.asked} == {("max_tokens", "messages", "model")}
    assert {body["max_tokens"] for body in chat.asked} == {64}


@pytest.mark.parametrize("suite", SCORER)
@pytest.mark.parametrize("lie", ["wrong", "blank"])
def test_wrong_answers_and_blanks_score_nothing(suite: SuiteName, lie: Any, lm_eval: Adapter, chat: FakeChat) -> None:
    chat.lie = lie
    result = lm_eval.run(ask(suite, chat, items_of(suite, 6)))
    assert result.error is None
    assert [sample.correct for sample in result.samples] == [False] * 6
    assert {score.metric: score.value for score in result.scores}[SCORER[suite]] == 0.0
    assert lie == "wrong" or [sample.response for sample in result.samples] == [""] * 6


def test_the_stock_templates_show_the_choices_in_the_frozen_order(lm_eval: Adapter, chat: FakeChat) -> None:
    items = items_of("gpqa", 4, plain=False)
    for sample, item in zip(lm_eval.run(ask("gpqa", chat, items, plain=False)).samples, items, strict=True):
        shown = "\n".join(f"({letter}) {choice}" for letter, choice in zip("ABCD", item.choices, strict=True))
        (message,) = sample.messages
        assert message["content"] == (
            f"What is the correct answer to this question:{item.question}\nChoices:\n{shown}\n"
            "Let's think step by step: "
        )


def test_mmlu_pro_is_asked_zero_shot_with_the_instruction_of_its_subject(lm_eval: Adapter, chat: FakeChat) -> None:
    items = items_of("mmlu-pro", 2, plain=False)
    system, user = lm_eval.run(ask("mmlu-pro", chat, items, plain=False)).samples[0].messages
    assert (system["role"], user["role"]) == ("system", "user")
    assert "multiple choice questions (with answers) about lookup." in system["content"]
    assert 'finish your answer with "the answer is (X)"' in system["content"]
    assert user["content"].startswith("Question:\nwhat color is ") and "\nOptions:\nA. " in user["content"]


@pytest.mark.parametrize("lie", ["broken", "no choices"])
def test_a_server_that_fails_gives_an_error_and_no_score(lie: Any, lm_eval: Adapter, chat: FakeChat) -> None:
    chat.lie = lie
    result = lm_eval.run(ask("gpqa", chat, items_of("gpqa", 4)))
    assert result.error and "\n" not in result.error
    assert (result.samples, result.scores, result.version) == ((), (), "0.4.13")


@pytest.mark.parametrize("at_once", [8, 1])
def test_a_dead_server_gives_an_error_and_no_score(at_once: int, lm_eval: Adapter) -> None:
    with fake_chat() as dead:
        job = ask("mmlu-pro", dead, items_of("mmlu-pro", 4), at_once=at_once)
    result = lm_eval.run(job)
    assert result.error and "127.0.0.1" in result.error
    assert (result.samples, result.scores) == ((), ())


def test_answers_that_are_there_are_graded_without_an_engine(lm_eval: Adapter) -> None:
    strict, loose, neither = (replace(ifeval_item("punctuation:no_comma"), item_id=name) for name in "abc")
    answers = {"a": "No comma here.", "b": "Sure, here it is:\nno comma", "c": "Well, one, two"}
    job = Job("grade", "ifeval", (strict, loose, neither), "", "m", 64, 1, False, ".", answers)
    result = lm_eval.run(job)
    assert result.error is None
    assert [sample.correct for sample in result.samples] == [True, False, False]
    assert [sample.details["prompt_level_loose"] for sample in result.samples] == [True, True, False]
    assert [sample.details["inst_strict"] for sample in result.samples] == [[True], [False], [False]]
    assert {score.metric: round(score.value, 2) for score in result.scores} == {
        "prompt_level_strict_acc,none": 0.33,
        "inst_level_strict_acc,none": 0.33,
        "prompt_level_loose_acc,none": 0.67,
        "inst_level_loose_acc,none": 0.67,
    }


@pytest.mark.parametrize("suite", SCORER)
def test_grading_again_gives_what_asking_gave(suite: SuiteName, lm_eval: Adapter, chat: FakeChat) -> None:
    asked = ask(suite, chat, items_of(suite))
    first = lm_eval.run(asked)
    answers = {sample.item_id: sample.response for sample in first.samples}
    again = lm_eval.run(replace(asked, do="grade", base_url="", answers=answers))
    assert again == first


def test_a_checker_that_throws_dice_throws_the_same_for_the_same_item(lm_eval: Adapter) -> None:
    """letter_frequency asks for a letter of its own choice where the given one is none of a-z."""
    items = tuple(
        replace(
            ifeval_item("keywords:letter_frequency", letter="#", let_frequency=4, let_relation="at least"),
            item_id=f"{n}",
        )
        for n in range(40)
    )
    answers = {item.item_id: "aaaabbbbccccddddeeeeffffgggg" for item in items}
    job = Job("grade", "ifeval", items, "", "m", 64, 1, False, ".", answers)
    said = [[sample.correct for sample in lm_eval.run(one).samples] for one in (job, job)]
    last_ten = lm_eval.run(replace(job, items=items[30:]))
    assert said[0] == said[1] and len(set(said[0])) == 2
    assert [sample.correct for sample in last_ten.samples] == said[0][30:]


def test_a_grade_job_without_answers_asks_only_whether_grading_could_be_done(lm_eval: Adapter) -> None:
    item = ifeval_item("punctuation:no_comma")
    job = Job("grade", "ifeval", (item,), "", "m", 64, 1, False, ".")
    assert (lm_eval.run(job).error, lm_eval.run(job).samples) == (None, ())
    unknown = replace(job, items=(ifeval_item("punctuation:no_semicolon"),))
    assert "lm-eval has no checker for punctuation:no_semicolon" in str(lm_eval.run(unknown).error)


@pytest.mark.slow(8)
def test_punkt_that_is_missing_is_said_before_anything_is_asked(tmp_path: Path, chat: FakeChat) -> None:
    nowhere = {"HOME": str(tmp_path), "NLTK_DATA": str(tmp_path), "https_proxy": "http://127.0.0.1:9"}
    with adapter(ensure("lm-eval"), MODULE, tmp_path, nowhere) as served:
        asked = ask("ifeval", chat, (ifeval_item("length_constraints:number_sentences", num_sentences=2),), plain=False)
        error = served.run(asked).error
        without = served.run(ask("ifeval", chat, items_of("ifeval", 2)))
    assert error and "number_sentences needs nltk's punkt_tab, which is not here and can't be downloaded" in error
    assert without.error is None
    assert len(chat.asked) == 2
