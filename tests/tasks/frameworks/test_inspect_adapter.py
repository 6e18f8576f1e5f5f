"""The real inspect_ai on the demo family's questions, against a fake chat server that answers in any order."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tasks.frameworks.process import Framework, FrameworkFailed
from tasks.host.environments import ensure
from tests.fake_chat import FakeChat, fake_chat
from tests.tasks.frameworks.family_items import Started, job_of, mispaired, started


@pytest.fixture(scope="module")
def inspect(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Started]:
    with started(Framework("inspect", ensure("inspect"), tmp_path_factory.mktemp("inspect"))) as framework:
        yield framework


@pytest.fixture
def chat() -> Iterator[FakeChat]:
    with fake_chat() as server:
        yield server


def test_a_plain_question_is_the_whole_message_and_every_answer_stays_with_its_question(
    inspect: Started, chat: FakeChat, tmp_path: Path
) -> None:
    chat.form = "\n\nANSWER: {letter} \n"
    job = job_of(chat, "gpqa", tmp_path)
    result = inspect.run(job)
    assert {item.item_id: item.question for item in job.items} == {
        sample.item_id: sample.messages[0]["content"] for sample in result.samples
    }
    assert sorted(body["messages"][0]["content"] for body in chat.asked) == sorted(item.question for item in job.items)
    assert {(len(body["messages"]), body["model"], body["max_tokens"]) for body in chat.asked} == {
        (1, "the-family/target", 100)
    }
    assert mispaired(chat, result) == []
    gold = {item.item_id: item.gold for item in job.items}
    assert all(sample.extracted == gold[sample.item_id] and sample.correct for sample in result.samples)
    (score,) = result.scores
    assert (score.metric, score.value, score.n) == ("accuracy", 1.0, 12)


def test_its_own_prompt_arrives_with_the_choices_in_the_order_given(
    inspect: Started, chat: FakeChat, tmp_path: Path
) -> None:
    chat.form = "**ANSWER: {letter}**"
    job = job_of(chat, "gpqa", tmp_path, plain=False)
    result = inspect.run(job)
    sent = {sample.item_id: sample.messages for sample in result.samples}
    for item in job.items:
        ((message),) = sent[item.item_id]
        assert message["content"].startswith("Answer the following multiple choice question. The last line of your")
        listed = "\n".join(f"{letter}) {choice}" for letter, choice in zip("ABCD", item.choices, strict=True))
        assert message["content"].endswith(f"{item.question}\n\n{listed}")
    assert {body["messages"][0]["content"] for body in chat.asked} == {said[0]["content"] for said in sent.values()}
    assert {sample.extracted for sample in result.samples} == {"A"}, "the fake doesn't know this form of a question"


def test_a_blank_is_seen_as_one_and_not_as_a_wrong_answer(inspect: Started, chat: FakeChat, tmp_path: Path) -> None:
    chat.lie = "blank"
    result = inspect.run(job_of(chat, "gpqa", tmp_path, plain=False))
    assert {(sample.response, sample.extracted, sample.correct) for sample in result.samples} == {("", None, None)}
    assert {sample.details["unread"] for sample in result.samples} == {"no_response"}


@pytest.mark.parametrize("lie", ["refused", "no choices", "broken"])
def test_an_answer_that_is_none_fails_the_job(inspect: Started, chat: FakeChat, tmp_path: Path, lie: str) -> None:
    chat.lie = lie  # type: ignore[assignment]
    with pytest.raises(FrameworkFailed, match=r"inspect failed: .*(content_filter|IndexError|Error code: 500)"):
        inspect.run(job_of(chat, "gpqa", tmp_path))


def test_answers_that_are_there_already_are_graded_without_a_server(
    inspect: Started, chat: FakeChat, tmp_path: Path
) -> None:
    asked = job_of(chat, "gpqa", tmp_path, plain=False)
    answers = {item.item_id: f"so it is\nANSWER: {item.gold}" for item in asked.items}
    result = inspect.run(replace(asked, do="grade", answers=answers, base_url=""))
    assert all(sample.correct and sample.response == answers[sample.item_id] for sample in result.samples)
    assert chat.asked == []


@pytest.mark.slow(19)
def test_a_dead_server_fails_the_job_and_a_killed_process_is_replaced(
    inspect: Started, chat: FakeChat, tmp_path: Path
) -> None:
    job = job_of(chat, "gpqa", tmp_path)
    with pytest.raises(FrameworkFailed, match=r"inspect failed: .*Connect"):
        inspect.run(replace(job, base_url="http://127.0.0.1:9/v1"))
    with pytest.raises(FrameworkFailed, match="inspect died"):
        inspect.run_and_be_killed(job)
    assert len(inspect.run(job).samples) == 12
