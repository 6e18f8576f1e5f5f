"""The response log between a client and an engine: what it keeps, what it replays, what it passes on."""

from __future__ import annotations

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
    played,
    post,
    question,
    response_log,
    spec,
)
from warehouse.ledger.steps import EXCHANGES
from warehouse.ledger.tables import decode, encode

IDENTITY = {"run_id": "r", "cell_key": POLICY.cell_key, "step": "eval-gpqa", "attempt": 1, "measured_at": "2026-11-22"}


@played
async def test_an_answer_is_asked_once_and_replayed_to_whoever_starts_again() -> None:
    async with FakeUpstream() as engine, response_log(engine, FakeStore()) as recorder:
        first = await post(recorder.url(0), question("say one"))
        recorder.answers.begin()
        second = await post(recorder.url(0), question("say one"))
        assert first == second
        assert len(engine.asked) == 1
        assert recorder.count[:3] == (1, 1, 0)


@played
async def test_an_attempt_goes_on_where_the_stored_rows_end() -> None:
    store = FakeStore()
    async with FakeUpstream() as engine:
        async with response_log(engine, store) as recorder:
            await ask(recorder, "say one")
            await ask(recorder, "say two")
        part = encode(EXCHANGES, [{**row, **IDENTITY} for row in store.rows])
        async with response_log(engine, store, decode(part, "part")) as recorder:
            assert [await ask(recorder, f"say {word}") for word in ("one", "two", "three")] == [
                "one",
                "two",
                "three",
            ]
            assert recorder.count[:2] == (1, 2)
            assert recorder.count.answered == 3
        assert len(engine.asked) == 3
        assert [row["body"] for row in store.rows] == ["one", "two", "three"]


@played
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


@played
async def test_two_equal_requests_at_a_time_both_go_to_the_engine() -> None:
    async with FakeUpstream() as engine, response_log(engine, FakeStore()) as recorder:
        engine.held = True
        both = [asyncio.create_task(ask(recorder, "say one")) for _ in range(2)]
        await engine.asked_for(2)
        assert recorder.count.in_flight == 2
        await engine.let_go()
        await asyncio.gather(*both)
        assert sorted(row["occurrence"] for row in recorder.answers.rows()) == [0, 1]


@played
async def test_samples_of_an_item_are_different_requests_even_without_a_seed() -> None:
    policy = policy_of(cell(greedy=False), spec())
    numbers = iter(range(10))
    async with FakeUpstream(lambda _: answer(str(next(numbers)))) as engine:
        async with response_log(engine, FakeStore(), policy=policy) as recorder:
            assert await ask(recorder, "a number", sample=0) == "0"
            recorder.answers.begin()
            assert await ask(recorder, "a number", sample=1) == "1"
        assert "seed" not in engine.asked[0]


@played
async def test_answers_of_another_model_are_not_replayed() -> None:
    async with FakeUpstream() as engine:
        async with response_log(engine, FakeStore()) as recorder:
            await ask(recorder, "say one")
            known = recorder.answers.rows()
        other = policy_of(cell("another"), spec(seed=7))
        async with response_log(engine, FakeStore(), known, policy=other) as recorder:
            await ask(recorder, "say one")
            assert recorder.count[:2] == (1, 0)
        assert [body["model"] for body in engine.asked] == ["m", "another"]


@played
async def test_answers_of_another_cell_are_refused_though_the_request_is_the_same() -> None:
    async with FakeUpstream() as engine:
        async with response_log(engine, FakeStore()) as recorder:
            await ask(recorder, "say one")
            known = [{**row, **IDENTITY} for row in recorder.answers.rows()]
        mtp = policy_of(cell(technique="mtp"), spec(seed=7))
        with pytest.raises(WrongResponseLog, match=POLICY.cell_key):
            response_log(engine, FakeStore(), known, policy=mtp)


@played
async def test_a_stop_string_never_reaches_the_engine_and_its_name_is_kept() -> None:
    async with FakeUpstream() as engine, response_log(engine, FakeStore()) as recorder:
        assert await ask(recorder, "say one", stop=["maybe"]) == "one"
        assert "stop" not in engine.asked[0]
        assert recorder.answers.rows()[0]["dropped"] == ["stop"]


@played
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
@played
async def test_what_is_no_whole_answer_is_asked_again_and_never_recorded(broken: dict[str, Any] | int) -> None:
    said = iter([broken, answer("whole")])
    store = FakeStore()
    async with FakeUpstream(lambda _: next(said)) as engine, response_log(engine, store) as recorder:
        status, document = await post(recorder.url(0), question("a"))
        assert status == 503
        assert document["error"]["code"] == 503 and document["error"]["message"].startswith(
            "specsweep's response log: the"
        )
        assert recorder.answers.rows() == []
        assert recorder.refusal is None and recorder.trouble
        assert await ask(recorder, "a") == "whole"
    assert [(row["occurrence"], row["body"]) for row in store.rows] == [(0, "whole")], "asked again: the same turn"


@played
async def test_a_request_that_the_engine_refuses_is_handed_on_and_remembered() -> None:
    async with FakeUpstream(lambda _: 400) as engine, response_log(engine, FakeStore()) as recorder:
        assert await post(recorder.url(0), question("a")) == (400, {"error": {"message": "no", "code": 400}})
        assert recorder.refusal == 'the engine answered HTTP 400: {"error": {"message": "no", "code": 400}}'


@played
async def test_streaming_is_refused_in_words() -> None:
    async with FakeUpstream() as engine, response_log(engine, FakeStore()) as recorder:
        status, document = await post(recorder.url(0), question("a", stream=True))
        assert status == 400
        assert "stream: True is refused" in document["error"]["message"]
        assert recorder.refusal and engine.asked == []


@pytest.mark.parametrize("body", [b"no json", b"[]", b'{"messages": [{"role": "user", "content": "\\ud800"}]}'])
@played
async def test_a_request_that_is_no_json_in_unicode_is_refused(body: bytes) -> None:
    async with (
        FakeUpstream() as engine,
        response_log(engine, FakeStore()) as recorder,
        aiohttp.ClientSession() as client,
    ):
        async with client.post(f"{recorder.url(0)}/chat/completions", data=body) as response:
            assert response.status == 400
            assert "no JSON object in Unicode" in (await response.json())["error"]["message"]


@played
async def test_a_prompt_of_ten_megabytes_goes_through() -> None:
    async with FakeUpstream(lambda body: answer(str(len(body["messages"][0]["content"])))) as engine:
        async with response_log(engine, FakeStore()) as recorder:
            assert await ask(recorder, "x" * 10**7) == str(10**7)


@played
async def test_the_engines_models_are_shown_through_the_response_log() -> None:
    async with (
        FakeUpstream() as engine,
        response_log(engine, FakeStore()) as recorder,
        aiohttp.ClientSession() as client,
    ):
        async with client.get(f"{recorder.url(3)}/models") as response:
            assert (await response.json())["data"] == [{"id": "m"}]


@played
async def test_a_row_has_the_request_as_the_engine_got_it() -> None:
    async with FakeUpstream() as engine, response_log(engine, FakeStore()) as recorder:
        await ask(recorder, "say 하나", sample=2)
        (row,) = recorder.answers.rows()
        assert json.loads(row["messages"]) == engine.asked[0].pop("messages")
        assert json.loads(row["parameters"]) == engine.asked[0]
        assert row["sample"] == 2 and engine.asked[0]["seed"] == 9
        assert row["latency_s"] > 0
        encode(EXCHANGES, [{**row, **IDENTITY}])
