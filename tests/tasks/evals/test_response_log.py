"""The response log between a client and an engine: what it keeps, what it replays, what it passes on."""

import asyncio
import json
from typing import Any

import aiohttp
import pytest

from tasks.evals.exchange import policy_of, prompt_hash
from tasks.evals.response_log import WrongResponseLog
from tests.tasks.evals.response_log_case import (
    POLICY,
    FakeStore,
    FakeUpstream,
    answer,
    ask,
    cell,
    post,
    question,
    response_log,
    spec,
)
from warehouse.ledger.steps.evaluation import EXCHANGES
from warehouse.ledger.tables import decode, encode

IDENTITY = {"run_id": "r", "cell_key": POLICY.cell_key, "step": "eval-gpqa", "attempt": 1, "measured_at": "2026-11-22"}


async def test_an_answer_is_asked_once_and_replayed_to_whoever_starts_again() -> None:
    async with FakeUpstream() as engine, response_log(engine, FakeStore()) as recorder:
        first = await post(recorder.url(0), question("say one"))
        recorder.answers.begin()
        second = await post(recorder.url(0), question("say one"))
        assert first == second
        assert len(engine.asked) == 1
        assert recorder.count[:3] == (1, 1, 0)


async def test_an_attempt_goes_on_where_the_stored_rows_end() -> None:
    store = FakeStore()
    async with FakeUpstream() as engine:
        async with response_log(engine, store) as recorder:
            await ask(recorder, "say one")
            await ask(recorder, "say two")
        part = encode(EXCHANGES, [{**row, **IDENTITY} for row in store.rows])
        async with response_log(engine, store, decode(part, "part")) as recorder:
            words = ["one", "two", "three"]
            assert [await ask(recorder, f"say {word}") for word in words] == words
            assert recorder.count[:2] == (1, 2)
            assert recorder.count.answered == 3
        assert len(engine.asked) == 3
        assert [row["body"] for row in store.rows] == ["one", "two", "three"]


async def test_equal_requests_get_different_answers_and_the_same_ones_in_order_again() -> None:
    numbers = iter(range(10))
    async with (
        FakeUpstream(lambda _: answer(str(next(numbers)))) as engine,
        response_log(engine, FakeStore()) as recorder,
    ):
        said = [await ask(recorder, "a number") for _ in range(3)]
        assert said == ["0", "1", "2"]
        recorder.answers.begin()
        assert [await ask(recorder, "a number") for _ in range(4)] == [*said, "3"]
        prompt = prompt_hash(question("a number")["messages"])
        rows = recorder.answers.to(prompt, 0)
        assert [(row["occurrence"], row["body"]) for row in rows] == [(0, "0"), (1, "1"), (2, "2"), (3, "3")]
        assert recorder.answers.to(prompt, 1) == []


async def test_two_equal_requests_at_a_time_both_go_to_the_engine() -> None:
    async with FakeUpstream() as engine, response_log(engine, FakeStore()) as recorder:
        engine.held = True
        both = [asyncio.create_task(ask(recorder, "say one")) for _ in range(2)]
        await engine.asked_for(2)
        assert recorder.count.in_flight == 2
        await engine.let_go()
        await asyncio.gather(*both)
        assert sorted(row["occurrence"] for row in recorder.answers.rows()) == [0, 1]


async def test_samples_of_an_item_are_different_requests_even_without_a_seed() -> None:
    policy = policy_of(cell(greedy=False), spec())
    numbers = iter(range(10))
    async with FakeUpstream(lambda _: answer(str(next(numbers)))) as engine:
        async with response_log(engine, FakeStore(), policy=policy) as recorder:
            assert await ask(recorder, "a number", sample=0) == "0"
            recorder.answers.begin()
            assert await ask(recorder, "a number", sample=1) == "1"
        assert "seed" not in engine.asked[0]


async def test_answers_of_another_model_are_not_replayed_and_those_of_another_cell_are_refused() -> None:
    """Though the request is the same."""
    async with FakeUpstream() as engine:
        async with response_log(engine, FakeStore()) as recorder:
            await ask(recorder, "say one")
            known = recorder.answers.rows()
        other = policy_of(cell("another"), spec(seed=7))
        async with response_log(engine, FakeStore(), known, policy=other) as recorder:
            await ask(recorder, "say one")
            assert recorder.count[:2] == (1, 0)
        assert [body["model"] for body in engine.asked] == ["m", "another"]
        mtp, known = policy_of(cell(technique="mtp"), spec(seed=7)), [{**row, **IDENTITY} for row in known]
        with pytest.raises(WrongResponseLog, match=POLICY.cell_key):
            response_log(engine, FakeStore(), known, policy=mtp)


async def test_a_row_has_the_request_as_the_engine_got_it_and_a_stop_string_never_reaches_it() -> None:
    async with FakeUpstream() as engine, response_log(engine, FakeStore()) as recorder:
        await ask(recorder, "say 하나", sample=2, stop=["maybe"])
        (row,) = recorder.answers.rows()
        assert row["dropped"] == ["stop"] and "stop" not in engine.asked[0]
        assert json.loads(row["messages"]) == engine.asked[0].pop("messages")
        assert json.loads(row["parameters"]) == engine.asked[0]
        assert row["sample"] == 2 and engine.asked[0]["seed"] == 9
        assert row["latency_s"] > 0
        encode(EXCHANGES, [{**row, **IDENTITY}])


async def test_null_stays_null_and_counts_as_blank_and_a_cut_answer_as_truncated() -> None:
    store = FakeStore()
    script = iter([answer(None), answer("half", "length", 9), answer("whole", tokens=4)])
    async with FakeUpstream(lambda _: next(script)) as engine, response_log(engine, store) as recorder:
        said = [await ask(recorder, f"question {number}") for number in range(3)]
        assert said == [None, "half", "whole"]
        count = recorder.count
        assert (count.blank, count.truncated, count.answered, count.completion_tokens) == (1, 1, 3, 18)
        recorder.answers.begin()
        assert await ask(recorder, "question 0") is None
    assert store.rows[0]["body"] is None
    assert store.rows[0]["reasoning"] == "hm"


BROKEN = {
    "an error": 500,
    "an ending that is none": answer("half", "abort"),
    "no choice": {**answer("x"), "choices": []},
    "no usage": {**answer("x"), "usage": None},
    "no document": {"detail": "?"},
}


@pytest.mark.parametrize("broken", BROKEN.values(), ids=BROKEN)
async def test_what_is_no_whole_answer_is_asked_again_and_never_recorded(broken: dict[str, Any] | int) -> None:
    said = iter([broken, answer("whole")])
    store = FakeStore()
    async with FakeUpstream(lambda _: next(said)) as engine, response_log(engine, store) as recorder:
        status, document = await post(recorder.url(0), question("a"))
        error = document["error"]
        assert (status, error["code"]) == (503, 503)
        assert error["message"].startswith("specsweep's response log: the")
        assert recorder.answers.rows() == []
        assert recorder.refusal is None and recorder.trouble
        assert await ask(recorder, "a") == "whole"
    assert [(row["occurrence"], row["body"]) for row in store.rows] == [(0, "whole")], "asked again: the same turn"


async def test_a_request_that_the_engine_refuses_is_handed_on_and_remembered() -> None:
    async with FakeUpstream(lambda _: 400) as engine, response_log(engine, FakeStore()) as recorder:
        assert await post(recorder.url(0), question("a")) == (400, {"error": {"message": "no", "code": 400}})
        assert recorder.refusal == 'the engine answered HTTP 400: {"error": {"message": "no", "code": 400}}'


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (question("a", stream=True), "stream: True is refused"),
        *((body, "no JSON object in Unicode") for body in (b"no json", b"[]")),
        (b'{"messages": [{"role": "user", "content": "\\ud800"}]}', "no JSON object in Unicode"),
    ],
    ids=["streaming", "no JSON", "no object", "no Unicode"],
)
async def test_what_can_not_be_answered_is_refused_in_words(body: Any, said: str) -> None:
    async with FakeUpstream() as engine, response_log(engine, FakeStore()) as recorder:
        status, document = await post(recorder.url(0), body)
        assert status == 400 and said in document["error"]["message"]
        assert engine.asked == [] and (recorder.refusal or isinstance(body, bytes))


async def test_a_prompt_of_ten_megabytes_goes_through() -> None:
    async with FakeUpstream(lambda body: answer(str(len(body["messages"][0]["content"])))) as engine:
        async with response_log(engine, FakeStore()) as recorder:
            assert await ask(recorder, "x" * 10**7) == str(10**7)


async def test_the_engines_models_are_shown_through_the_response_log() -> None:
    async with FakeUpstream() as engine, response_log(engine, FakeStore()) as log, aiohttp.ClientSession() as client:
        async with client.get(f"{log.url(3)}/models") as response:
            assert (await response.json())["data"] == [{"id": "m"}]
