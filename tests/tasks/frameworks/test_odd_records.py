"""What the real frameworks send of records as the datasets have them is what pairing expects of them, and no more."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from configs.evals.suites import Framework as Name
from configs.evals.suites import SuiteName
from tasks.evals.data.shapes import item_of
from tasks.evals.hashes import prompt_hash
from tasks.evals.pairing import PairingError, paired
from tasks.frameworks.job import Item, Job, Result
from tasks.frameworks.process import Framework
from tasks.host.environments import ensure
from tests.fake_chat import FakeChat, fake_chat
from tests.tasks.evals.graded import Recorded
from tests.tasks.frameworks.family_items import Started, started
from tests.tasks.frameworks.odd_records import RECORDS

Running = tuple[Name, Started]

SUITES: dict[Name, tuple[SuiteName, ...]] = {
    "lm-eval": ("gpqa", "mmlu-pro", "ifeval"),
    "inspect": ("gpqa",),
    "hret": ("hae-rae", "kmmlu"),
}


@pytest.fixture(scope="module", params=SUITES)
def framework(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    name: Name = request.param
    with started(Framework(name, ensure(name), tmp_path_factory.mktemp(name))) as running:
        yield name, running


@pytest.fixture
def chat() -> Iterator[FakeChat]:
    with fake_chat() as server:
        yield server


def asked(
    framework: Started, chat: FakeChat, suite: SuiteName, workdir: Path
) -> tuple[tuple[Item, ...], Result, Recorded]:
    """The items, what the framework made of them, and the requests that really arrived, as a tape has them."""
    items = tuple(item_of(suite, record, "", plain=False) for record in RECORDS[suite])
    chat.asked.clear()
    result = framework.run(Job("ask", suite, items, chat.base_url, "m", 64, 4, plain=False, workdir=str(workdir)))
    rows = [
        {
            "prompt_hash": prompt_hash(body["messages"]),
            "sample": 0,
            "occurrence": 0,
            "body": chat.answer(body)["choices"][0]["message"]["content"],
        }
        for body in chat.asked
    ]
    return items, result, Recorded(rows)


def test_every_odd_record_is_paired_with_its_own_answer_and_swapped_prompts_are_refused(
    framework: Running, chat: FakeChat, tmp_path: Path
) -> None:
    name, running = framework
    for suite in SUITES[name]:
        items, result, tape = asked(running, chat, suite, tmp_path)
        assert [each.item for each in paired(result, items, tape, 0)] == list(items)
        first, second, *rest = result.samples
        swapped = (replace(first, item_id=second.item_id), replace(second, item_id=first.item_id), *rest)
        with pytest.raises(PairingError, match=r"2 of . items were asked with a prompt that has not their question"):
            paired(replace(result, samples=swapped), items, tape, 0)


THOUGHTS = "<think>정답: (A) The answer is (A). ANSWER: A, or so</think>\n\n"

FORMS: dict[Name, str] = {"lm-eval": "The answer is ({}).", "inspect": "ANSWER: {}", "hret": "정답: ({})"}
"""Of an answer, as each framework's own reader wants it."""


def test_thoughts_that_the_engine_left_in_the_body_are_not_graded(framework: Running, tmp_path: Path) -> None:
    """As with a model whose recipe names no reasoning parser."""
    name, running = framework
    for suite in SUITES[name]:
        items = tuple(item_of(suite, record, "", plain=False) for record in RECORDS[suite])
        answers = {item.item_id: THOUGHTS + FORMS[name].format(item.gold) for item in items}
        result = running.run(Job("grade", suite, items, "", "m", 64, 1, False, str(tmp_path), answers))
        assert [sample.correct for sample in result.samples] == [True] * len(items), (suite, result.samples)


@pytest.mark.slow(6)
def test_a_question_that_is_no_more_than_a_heading_is_no_item() -> None:
    with pytest.raises(Exception, match="column 'query' is '### 정답'; accepted: a text"):
        item_of("hae-rae", {"query": "### 정답", "answer": "(A)"}, "", plain=False)
