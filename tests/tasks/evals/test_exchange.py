"""A request by itself, and the response log between a client and an engine: what it keeps, replays and passes on."""

import asyncio
import json
from typing import Any

import aiohttp
import pytest

from tasks.evals.exchange import Answers, Count, RequestRefused, apply, policy_of, prompt_hash, request_hash
from tasks.evals.progress import UNKNOWN_AT_ONCE, Pace, at_once, kv_tokens, mean_tokens, progress, tokens_left
from tasks.evals.response_log import WrongResponseLog
from tests.tasks.evals.log_case import FakeStore, FakeUpstream, answer, ask, cell, post, question, response_log, spec
from warehouse.ledger.steps import EXCHANGES
from warehouse.ledger.tables import decode, encode

LM_EVAL = question(
    "Q: 1+1?", max_tokens=2048, temperature=0, seed=1234, stop=["</s>", "Q:"], top_k=1, n=1, stream=False, user=None
)
ASKED = [{"role": "user", "content": "하나를\n고르시오"}]


def test_every_framework_gets_the_sampling_and_the_thinking_of_the_cell() -> None:
    policy = policy_of(cell(), spec(seed=7, temperature=0.6, top_p=0.95, max_tokens=32768))
    body, dropped = apply(policy, LM_EVAL, 0)
    assert body == {
        "model": "m", "messages": LM_EVAL["messages"], "max_tokens": 32768, "temperature": 0.6, "top_p": 0.95,
        "seed": 7, "chat_template_kwargs": {"enable_thinking": True},
    }  # fmt: skip
    assert dropped == ["stop", "top_k"], "n=1, stream=False and user=None ask for nothing"
    assert [apply(policy, LM_EVAL, sample)[0]["seed"] for sample in range(3)] == [7, 8, 9]


@pytest.mark.parametrize(
    ("greedy", "sent", "reaches", "dropped"),
    [
        (True, {"max_completion_tokens": 5}, {"max_tokens": 99}, ["max_completion_tokens"]),
        (False, {"temperature": 0, "seed": 1, "stop": ["Q:"]}, {"seed": None}, ["seed", "stop", "temperature"]),
        (
            True,
            {"chat_template_kwargs": {"enable_thinking": False, "lang": "ko"}},
            {"chat_template_kwargs": {"enable_thinking": True, "lang": "ko"}},
            [],
        ),
    ],
    ids=["length", "block-diffusion", "thinking"],
)
def test_cell_or_step_decides(greedy: bool, sent: dict[str, Any], reaches: dict[str, Any], dropped: list[str]) -> None:
    body, left_out = apply(policy_of(cell(greedy=greedy), spec(max_tokens=99)), question("a", **sent), 0)
    assert ({name: body.get(name) for name in reaches}, left_out) == (reaches, dropped)
    assert greedy == ("temperature" in body) == ("top_p" in body)


@pytest.mark.parametrize(
    ("body", "said"),
    [
        *[
            (question("a", **{field: value}), f"^{field}: .*ask without it$")
            for field, value in {"stream": True, "n": 2, "logprobs": True, "top_logprobs": 5, "tools": [{}]}.items()
        ],
        *[(body, "^messages: ") for body in ({}, {"messages": []}, {"messages": "hello"})],
    ],
)
def test_what_the_response_log_cannot_answer_is_refused_by_name(body: dict[str, Any], said: str) -> None:
    with pytest.raises(RequestRefused, match=said):
        apply(policy_of(cell(), spec()), body, 0)


@pytest.mark.parametrize(
    "spelled",
    [
        [{"content": "하나를\n고르시오", "role": "user"}],
        [{"role": "user", "content": "하나를\n고르시오", "type": "text", "name": None}],
        [{"role": "user", "content": [{"type": "text", "text": "하나를"}, {"type": "text", "text": "고르시오"}]}],
    ],
)
def test_a_prompt_has_one_hash_however_it_is_spelled_and_another_role_or_seed_another(spelled: list[Any]) -> None:
    assert prompt_hash(spelled) == prompt_hash(ASKED) == "0621d38c3c2c46f244d91e72cc2f3b76", "it may not move"
    assert request_hash({"model": "m", "messages": spelled}) == request_hash({"messages": ASKED, "model": "m"})
    assert prompt_hash([{"role": "system", "content": "하나를\n고르시오"}]) != prompt_hash(ASKED)
    assert request_hash({"messages": ASKED, "seed": 1}) != request_hash({"messages": ASKED, "seed": 2})
    with pytest.raises(ValueError, match="neither text nor text parts"):
        prompt_hash([{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}])


def test_a_turn_that_was_given_back_is_the_next_one_of_its_own_job() -> None:
    answers = Answers([])
    first, second = answers.take("a"), answers.take("a")
    answers.give_back(first)
    assert (first.occurrence, second.occurrence) == (0, 1)
    assert [answers.take("a").occurrence for _ in range(2)] == [0, 2]
    answers.begin()
    assert answers.take("a").occurrence == 0
    answers.give_back(first)  # the response log hears only now that the job before was killed
    assert answers.take("a").occurrence == 1


NOTHING = Count(0, 0, 0, 0, None, 0, 0, 0, 0)
MAX_TOKENS = 32768


def test_long_answers_in_flight_count_before_they_end() -> None:
    short_ones = NOTHING._replace(asked=20, answered=10, completion_tokens=10000, fresh_tokens=10000)
    running = short_ones._replace(in_flight=10, generated_tokens=110000)
    assert mean_tokens(short_ones, 1000, MAX_TOKENS) == 1000
    assert mean_tokens(running, 1000, MAX_TOKENS) > 10000, "the ten that ended first were the short ones"
    assert progress(running, 20, 1000, MAX_TOKENS, None).percent < 60, "half of the items, but not half of the work"
    nearly = NOTHING._replace(asked=1, in_flight=1, generated_tokens=MAX_TOKENS - 10.0)
    assert tokens_left(nearly, 1, 8000, MAX_TOKENS) == 10, "nothing is expected beyond the longest answer"
    assert tokens_left(NOTHING, 10, 8000, MAX_TOKENS) == 80000, "the forecast stands before anything is known"


@pytest.mark.parametrize(
    ("count", "expected_tokens", "tok_s", "percent", "line"),
    [
        (NOTHING, 8000, None, 0, "0 of 10 answered"),
        (NOTHING._replace(answered=5, completion_tokens=40000, replayed=5), 8000, None, 50, "5 of 10 answered"),
        (
            NOTHING._replace(asked=6, in_flight=1, answered=5, completion_tokens=500, fresh_tokens=500),
            *(100, None, 50, "5 of 10 answered, 1 in flight"),
        ),
        (
            NOTHING._replace(asked=10, answered=10, completion_tokens=500, fresh_tokens=500, generated_tokens=500.0),
            *(100, 50.0, 100, "10 of 10 answered"),
        ),
        (
            Count(9, 1, 2, 800, 900.0, answered=8, completion_tokens=800, truncated=2, blank=1),
            *(100, 100.0, 8100 / 101, "8 of 10 answered, 2 cut off, 1 blank, 2 in flight, 100 tok/s, 2s left"),
        ),
    ],
    ids=["the forecast stands", "an earlier attempt's count", "no counter", "finished", "all that matters"],
)
def test_the_share_is_that_of_tokens_and_the_line_has_what_matters(
    count: Count, expected_tokens: float, tok_s: float | None, percent: float, line: str
) -> None:
    said = progress(count, 10, expected_tokens, MAX_TOKENS, tok_s)
    assert (said.percent, said.line, said.tok_s) == (pytest.approx(percent), line, tok_s)


def test_the_rate_is_that_of_the_last_minutes() -> None:
    pace = Pace()
    assert pace.tok_s(0, 0) is None
    assert pace.tok_s(10, 1000) == 100
    assert pace.tok_s(20, 1000) == 50
    for second in range(30, 400, 10):
        late = pace.tok_s(second, 1000 + second)
    assert late == pytest.approx(1.0)
    assert Pace().tok_s(5, 5) is None


STEP = spec(max_tokens=32768)
LONGEST = 32768 + STEP.suite.longest_prompt_tokens


def page(engine: int = 0, **labels: object) -> str:
    said = ",".join(f'{name}="{value}"' for name, value in {"cache_dtype": "auto", "engine": engine, **labels}.items())
    return f"# TYPE vllm:cache_config_info gauge\nvllm:cache_config_info{{{said}}} 1.0\n"


BLOCKS = {"num_gpu_blocks": 1000, "block_size": 16}
LARGE = page(kv_cache_size_tokens=10**9)


@pytest.mark.parametrize(
    ("text", "tokens"),
    [
        (page(**BLOCKS), 16000),
        (page(kv_cache_size_tokens=None, **BLOCKS), 16000),
        (page(0, kv_cache_size_tokens=500) + page(1, kv_cache_size_tokens=500), 1000),
        (page(0, **BLOCKS) + page(1, **BLOCKS), 16000),
    ],
    ids=["older", "none-said", "two-engines", "summed-already"],
)
def test_the_caches_tokens_are_each_engines_own_or_the_blocks_of_all(text: str, tokens: int) -> None:
    assert kv_tokens(text) == tokens


@pytest.mark.parametrize(
    ("max_num_seqs", "text", "number"),
    [
        (None, page(kv_cache_size_tokens=10 * LONGEST + 5, num_gpu_blocks=9, block_size=16), 10),
        (None, page(kv_cache_size_tokens=100), 1),
        (12, LARGE, 12),
        (4096, LARGE, 256),
        (12, "", 12),
        (None, page(num_gpu_blocks=None), UNKNOWN_AT_ONCE),
    ],
    ids=["as-many-as-fit", "too-small-for-one", "the-cells-limit", "ours", "nothing-said", "nor-a-limit"],
)
def test_so_many_are_asked_at_a_time(max_num_seqs: int | None, text: str, number: int) -> None:
    assert at_once(STEP, cell(max_num_seqs=max_num_seqs), text)[0] == number


def test_the_step_has_the_last_word() -> None:
    assert at_once(spec(concurrency=3), cell(), LARGE) == (3, "3 at a time, as the step says")


POLICY = policy_of(cell(), spec(seed=7))
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
        assert await ask(recorder, "say 하나", sample=2, stop=["maybe"]) == "하나"
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
