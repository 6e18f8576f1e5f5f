"""The real HRET on the demo family's questions, against a fake chat server that answers in any order."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tasks.evals.hashes import prompt_hash
from tasks.evals.pairing import AnswersTo, PairingError, paired
from tasks.frameworks.process import Framework, FrameworkFailed
from tasks.host.environments import ensure
from tests.fake_chat import FakeChat, fake_chat
from tests.tasks.frameworks.family_items import Started, job_of, mispaired, started

SUITES = ("hae-rae", "kmmlu")


@pytest.fixture(scope="module")
def hret(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Started]:
    with started(Framework("hret", ensure("hret"), tmp_path_factory.mktemp("hret"))) as framework:
        yield framework


@pytest.fixture
def chat() -> Iterator[FakeChat]:
    with fake_chat() as server:
        yield server


@pytest.mark.parametrize("suite", SUITES)
def test_a_plain_question_is_the_whole_message_and_every_answer_stays_with_its_question(
    hret: Started, chat: FakeChat, tmp_path: Path, suite: str
) -> None:
    chat.form = "따라서, 정답은: ({letter})"
    job = job_of(chat, suite, tmp_path, n=40, concurrency=20)
    result = hret.run(job)
    assert [sample.item_id for sample in result.samples] == [item.item_id for item in job.items]
    assert [sample.messages for sample in result.samples] == [
        [{"role": "user", "content": item.question}] for item in job.items
    ]
    assert sorted(body["messages"][0]["content"] for body in chat.asked) == sorted(item.question for item in job.items)
    assert mispaired(chat, result) == []
    assert [sample.extracted for sample in result.samples] == [f"({item.gold.lower()})" for item in job.items]
    assert all(sample.correct for sample in result.samples)
    assert [(score.metric, score.value, score.n) for score in result.scores] == [("accuracy", 1.0, 40)]


@pytest.mark.slow(7)
def test_its_released_backend_gives_answers_to_the_wrong_questions_and_the_messages_show_it(
    chat: FakeChat, tmp_path: Path
) -> None:
    chat.form = "따라서, 정답은: ({letter})"
    stock = Framework("hret", ensure("hret"), tmp_path, "tests.tasks.frameworks.stock_hret")
    with started(stock) as hret:
        job = job_of(chat, "hae-rae", tmp_path, n=40, concurrency=20)
        result = hret.run(job)
    assert len(mispaired(chat, result)) > 10
    assert result.scores[0].value < 0.75, "every answer was right"
    with pytest.raises(PairingError, match="of 40 items were graded on a response that is not the engine's answer"):
        paired(result, job.items, answered_by(chat), 0)


def answered_by(chat: FakeChat) -> AnswersTo:
    """What the server really answered, as a tape would have it."""
    rows: dict[str, list[dict[str, object]]] = {}
    for asked in chat.asked:
        body = chat.answer(asked)["choices"][0]["message"]["content"]
        rows.setdefault(prompt_hash(asked["messages"]), []).append({"body": body, "occurrence": 0})
    return lambda wanted, sample: rows.get(wanted, [])


@pytest.mark.parametrize(
    ("suite", "end"),
    [("hae-rae", "(A), (B), (C), (D), (E) 중 하나입니다. {asks} {listed}"), ("kmmlu", "\n\n질문: {asks}\n{listed}")],
)
def test_its_own_prompt_arrives(hret: Started, chat: FakeChat, tmp_path: Path, suite: str, end: str) -> None:
    form, between = ("{choice} ({letter})", " ") if suite == "hae-rae" else ("{letter}. {choice}", "\n")
    job = job_of(chat, suite, tmp_path, plain=False)
    hret.run(job)
    sent = {body["messages"][0]["content"] for body in chat.asked}
    for item in job.items:
        pairs = zip("ABCD", item.choices, strict=True)
        listed = between.join(form.format(letter=letter, choice=choice) for letter, choice in pairs)
        (message,) = [said for said in sent if said.endswith(end.format(asks=item.question, listed=listed))]
        assert message.startswith("다음은 객관식 문제입니다. 당신의 추론 과정을 간결하게 요약한 후")


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"answer": 5}, "HRET reads the answer '', not '"),
        ({"answer": None}, "its record has no answer"),
        ({"B": ""}, "its record has no B"),
    ],
)
def test_a_record_of_which_hret_would_make_another_question_is_an_error(
    hret: Started, chat: FakeChat, tmp_path: Path, change: dict[str, object], complaint: str
) -> None:
    job = job_of(chat, "kmmlu", tmp_path, n=2, plain=False)
    first, second = job.items
    broken = replace(job, items=(first, replace(second, record={**second.record, **change})))
    with pytest.raises(FrameworkFailed, match=f"item {second.item_id}: {complaint}"):
        hret.run(broken)
    assert chat.asked == []


def test_a_blank_is_seen_as_one(hret: Started, chat: FakeChat, tmp_path: Path) -> None:
    chat.lie = "blank"
    result = hret.run(job_of(chat, "kmmlu", tmp_path))
    assert {(sample.response, sample.extracted) for sample in result.samples} == {("", None)}
    assert {sample.details["unread"] for sample in result.samples} == {"no_response"}


@pytest.mark.parametrize("lie", ["refused", "no choices", "broken"])
def test_an_answer_that_is_none_fails_the_job(hret: Started, chat: FakeChat, tmp_path: Path, lie: str) -> None:
    chat.lie = lie  # type: ignore[assignment]
    with pytest.raises(FrameworkFailed, match=r"hret failed: item .*(content_filter|not enough values|code: 500)"):
        hret.run(job_of(chat, "kmmlu", tmp_path))


def test_answers_that_are_there_already_are_graded_without_a_server(
    hret: Started, chat: FakeChat, tmp_path: Path
) -> None:
    asked = job_of(chat, "kmmlu", tmp_path, plain=False)
    answers = {item.item_id: f"정답: ({item.gold})" for item in asked.items}
    result = hret.run(replace(asked, do="grade", answers=answers, base_url=""))
    assert all(sample.correct and sample.response == answers[sample.item_id] for sample in result.samples)
    assert chat.asked == []


@pytest.mark.slow(14)
def test_a_dead_server_fails_the_job_and_a_killed_process_is_replaced(
    hret: Started, chat: FakeChat, tmp_path: Path
) -> None:
    job = job_of(chat, "hae-rae", tmp_path)
    with pytest.raises(FrameworkFailed, match=r"hret failed: item .*: APIConnectionError: Connection error"):
        hret.run(replace(job, base_url="http://127.0.0.1:9/v1"))
    with pytest.raises(FrameworkFailed, match="hret died"):
        hret.run_and_be_killed(job)
    assert len(hret.run(job).samples) == 12
