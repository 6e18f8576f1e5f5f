"""The client against a real server that misbehaves or is slow: what it waits for, believes, and says instead."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import pytest

from configs.cell import Model, Technique
from configs.load import load_model, load_technique
from tasks.client import Client, Ready, Reply, RequestFailed, Unanswered, request_body
from tasks.client.replies import mean_logprob, top2_gaps
from tasks.prompts import Prompt
from tasks.wire.connection import Patience
from tests.busy_machine import PATIENCE_S
from tests.tasks.wire.scripted_server import HandClock, Play, Scripted, hang, moved_by_hand, then_close

T = TypeVar("T")

MODEL = Model(name="m", family="m", hub_id="m/m", total_params_b=1, active_params_b=1)
BODY: dict[str, Any] = {"model": "m", "messages": [{"role": "user", "content": "hello"}], "max_tokens": 6}
QUIET_S = 20.0


def page(text: str, status: str = "200 OK") -> bytes:
    return f"HTTP/1.1 {status}\r\ncontent-length: {len(text)}\r\n\r\n{text}".encode()


def ask(what: Callable[[Client], Awaitable[T]], *script: bytes | Play, quiet_s: float | None = QUIET_S) -> T:
    """What a client that is patient for so long gets from a server that plays `script`."""

    async def both() -> T:
        async with Scripted(*script) as server:
            technique = Technique(name="ar", method="ar")
            async with Client(server.url, MODEL, technique, Patience(quiet_s=quiet_s)) as client:
                async with asyncio.timeout(PATIENCE_S):
                    return await what(client)

    return asyncio.run(both())


def answer(**changes: Any) -> dict[str, Any]:
    choice = {"message": {"content": "a b c"}, "finish_reason": "length"}
    return {"choices": [choice], "usage": {"prompt_tokens": 3, "completion_tokens": 6}} | changes


def said_to_be(**changes: Any) -> bytes:
    return page(json.dumps(answer(**changes)))


def chunk(text: str, tokens: int, **more: Any) -> bytes:
    choice = {"delta": {"content": text}, "finish_reason": "length" if tokens == 6 else None}
    return framed({"choices": [choice], "usage": {"prompt_tokens": 3, "completion_tokens": tokens}} | more)


def framed(event: Any) -> bytes:
    data = f"data: {json.dumps(event)}\n\n".encode()
    return b"%x\r\n%s\r\n" % (len(data), data)


HEAD = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"
DONE = b"e\r\ndata: [DONE]\n\n\r\n0\r\n\r\n"


def test_what_the_engine_says_of_a_request_is_read() -> None:
    drafts = {"num_spec_steps": 2, "num_draft_tokens": 8, "num_accepted_draft_tokens": 3}
    metrics = {"queue_time_ms": 0.5, "time_to_first_token_ms": 3.35, "generation_time_ms": 90.96, "mean_itl_ms": 1.4}
    metrics["speculative_decoding"] = drafts | {"acceptance_histogram": [0, 1, 1, 0, 0]}  # type: ignore[assignment]
    said = ask(lambda client: client.complete(BODY), said_to_be(metrics=metrics))
    assert (said.engine.queue_ms, said.engine.ttft_ms, said.engine.generation_ms) == (0.5, 3.35, 90.96)
    assert (said.engine.draft_steps, said.engine.accepted_tokens) == (2, 3)
    assert said.engine.accepted_histogram == [0, 1, 1, 0, 0]


@pytest.mark.parametrize(("details", "cached"), [({"cached_tokens": 2}, 2), ({"cached_tokens": None}, 0), (None, 0)])
def test_prompt_tokens_from_the_cache_are_read_off_the_usage(details: dict[str, Any] | None, cached: int) -> None:
    """As vLLM sends it: of a stream with the last usage only, and of an engine that is not asked for it nothing."""
    usage = {"prompt_tokens": 3, "completion_tokens": 6, "prompt_tokens_details": details}
    whole = ask(lambda client: client.complete(BODY), said_to_be(usage=usage))
    last = framed({"choices": [], "usage": usage})
    streamed = ask(lambda client: client.stream(BODY), HEAD + chunk("a", 6) + last + DONE)
    assert (whole.cached_tokens, streamed.cached_tokens) == (cached, cached)


@pytest.mark.parametrize(
    ("served", "said"),
    [
        (page('{"error": "busy"}', "500 Internal Server Error"), 'HTTP 500: {"error": "busy"}'),
        (page("no json"), "no JSON"),
        (page("[]"), "no JSON object"),
        (said_to_be(usage=None), "no chat completion with its usage"),
        (said_to_be(usage={"completion_tokens": 6}), "prompt_tokens"),
        (said_to_be(usage={"prompt_tokens": 3, "completion_tokens": None}), "no chat completion"),
        (said_to_be(choices=[]), "no chat completion"),
        (said_to_be(choices=None), "no chat completion"),
        (said_to_be(choices=[{"message": None, "finish_reason": "stop"}]), "no chat completion"),
        (said_to_be(choices=[{"message": {"content": 7}, "finish_reason": "stop"}]), "no chat completion"),
        (said_to_be(metrics=[7]), "no chat completion"),
        (said_to_be(choices=[{"message": {}, "finish_reason": "abort"}]), "finish_reason 'abort'"),
        (then_close(said_to_be()[:-9]), "cut short"),
    ],
)
def test_an_answer_that_can_not_be_measured_is_one_clear_error(served: bytes | Play, said: str) -> None:
    with pytest.raises(RequestFailed) as error:
        ask(lambda client: client.complete(BODY), served)
    assert said in str(error.value) and "\n" not in str(error.value)


def test_a_streamed_request_asks_for_the_token_ids_without_which_hidden_tokens_have_no_chunk() -> None:
    """Three tokens of Gemma 4's thinking have no text; with their ids come chunks, and so the first token's moment."""
    ids = {"token_ids": [7]}
    hidden = [framed({"choices": [{"delta": {}} | ids], "usage": {"prompt_tokens": 3, "completion_tokens": each}})
              for each in (1, 2, 3)]  # fmt: skip
    said = framed({"choices": [{"delta": {"content": "a b c"}, "token_ids": [7, 7, 7], "finish_reason": "length"}],
                   "usage": {"prompt_tokens": 3, "completion_tokens": 6}})  # fmt: skip

    def sent(ready: Ready) -> Any:
        return json.loads(ready.data.partition(b"\r\n\r\n")[2])

    async def both(client: Client) -> Any:
        return client.ready(BODY), client.ready(BODY, streams=True), await client.stream(BODY)

    whole, streamed, reply = ask(both, HEAD + b"".join(hidden) + said + DONE)
    assert "return_token_ids" not in sent(whole) and sent(streamed)["return_token_ids"] is True
    assert (reply.first_chunk_tokens, reply.chunks, reply.token_id_count) == (1, 4, 6)


def test_a_stream_s_tokens_are_counted_by_usage_and_a_chunk_may_say_that_nothing_is_wrong() -> None:
    stream = HEAD + chunk("a ", 1) + chunk("b c d e ", 4) + chunk("f", 6, metrics={"queue_time_ms": 2.0}) + DONE
    reply = ask(lambda client: client.stream(BODY), stream)
    assert (reply.completion_tokens, reply.chunks, reply.largest_chunk_tokens, reply.text) == (6, 3, 3, "a b c d e f")
    assert reply.engine.queue_ms == 2.0
    reply = ask(lambda client: client.stream(BODY), HEAD + chunk("a b c", 6, error=None) + DONE)
    assert (reply.text, reply.completion_tokens) == ("a b c", 6)


@pytest.mark.parametrize(
    ("stream", "said"),
    [
        (then_close(HEAD + chunk("a", 1)), "cut short"),
        (HEAD + chunk("a", 6) + b"0\r\n\r\n", "without [DONE]"),
        (HEAD + chunk("a", 1) + DONE, "finish_reason ''"),
        (HEAD + framed({"error": "out of memory"}) + DONE, "out of memory"),
        (HEAD + framed([]) + DONE, "no chunk of a chat completion"),
        (HEAD + chunk("a", 6, choices=None) + DONE, "no chunk of a chat completion"),
        (HEAD + chunk("a", 6, choices=[None]) + DONE, "no chunk of a chat completion"),
        (HEAD + chunk("a", 6, usage={"prompt_tokens": 3, "completion_tokens": None}) + DONE, "no chunk of a chat comp"),
        (HEAD + chunk("a", 6, usage={"prompt_tokens": None, "completion_tokens": 6}) + DONE, "without usage"),
        (HEAD + chunk("a", 6, usage=[1]) + DONE, "no chunk of a chat completion"),
        (HEAD + chunk("a", 6, choices=[{"delta": {"content": 7}}]) + DONE, "no chunk of a chat completion"),
        (page("busy", "503 Service Unavailable"), "HTTP 503: busy"),
    ],
)
def test_a_stream_that_is_not_whole_is_an_error(stream: bytes | Play, said: str) -> None:
    with pytest.raises(RequestFailed, match=said.replace("[", r"\[")):
        ask(lambda client: client.stream(BODY), stream)


def test_a_hung_request_is_ended_with_its_time_and_its_name() -> None:
    """The engine's counters stand still, too: /metrics is looked at, and says the same each time."""

    async def play(writer: asyncio.StreamWriter) -> None:
        writer.write(page("vllm:generation_tokens_total 7\n"))

    with pytest.raises(Unanswered, match=r"POST http.*/v1/chat/completions, 6 tokens asked: no progress for 1 s"):
        ask(lambda client: client.complete(BODY), hang, play, quiet_s=1.0)


def test_a_long_answer_is_waited_for_while_the_engine_makes_tokens(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing comes for more than twice its patience; the engine's counter rises at each look."""
    clock = moved_by_hand(monkeypatch)
    monkeypatch.setattr("tasks.client.client.LOOKS", 2000)  # every 10 ms by the loop's clock, which is real
    looks = 0

    async def ask_twice(client: Client) -> tuple[int, str]:
        reply = await client.complete(BODY)
        return looks, reply.body

    async def late(writer: asyncio.StreamWriter) -> None:
        for _ in range(225):  # 45 s, a fifth of one in each round of the loop that client and server share
            clock.now_s += 0.2
            await asyncio.sleep(0.001)
        writer.write(said_to_be())

    async def counters(writer: asyncio.StreamWriter) -> None:
        nonlocal looks
        looks += 1
        writer.write(page(f"vllm:generation_tokens_total {looks}\n"))

    seen, body = ask(ask_twice, late, counters, quiet_s=20.0)
    assert seen >= 2 and body == "a b c"


async def test_nobody_listens_is_said_at_once() -> None:
    async with Scripted(hang) as server:
        url = server.url
    async with Client(url, MODEL, Technique(name="ar", method="ar")) as client:
        with pytest.raises(Unanswered, match="no connection"):
            await client.connect(2)
        with pytest.raises(Unanswered, match="ECONNREFUSED"):
            await client.complete(BODY)


def bytewise(clock: HandClock, at_once: bytes, then: bytes, every_s: float) -> Play:
    """Say something, then one byte after another, so many seconds apart, for ever."""

    async def play(writer: asyncio.StreamWriter) -> None:
        writer.write(at_once)
        while True:
            for byte in then:
                await asyncio.sleep(0.001)
                clock.now_s += every_s
                writer.write(bytes([byte]))

    return play


@pytest.mark.parametrize(
    ("at_once", "then"),
    [(b"", b"HTTP/1.1 200 OK\r\nx-" + b"v" * 5000), (HEAD, b"1\r\n \r\n"), (HEAD + chunk("a ", 1), b"1\r\n \r\n")],
    ids=["head", "body", "behind-a-token"],
)
def test_a_server_that_dribbles_is_ended_after_the_stated_time(
    monkeypatch: pytest.MonkeyPatch, at_once: bytes, then: bytes
) -> None:
    clock = moved_by_hand(monkeypatch)
    begun_s = clock.now_s
    with pytest.raises(Unanswered, match=rf"no progress for {QUIET_S:g} s: it dribbles"):
        ask(lambda client: client.stream(BODY), bytewise(clock, at_once, then, 1.0), quiet_s=QUIET_S)
    assert clock.now_s - begun_s < 3 * QUIET_S


def test_an_engine_that_takes_long_for_each_token_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = moved_by_hand(monkeypatch)

    async def slow(writer: asyncio.StreamWriter) -> None:
        writer.write(HEAD)
        for tokens in range(1, 7):
            for _ in range(15):
                await asyncio.sleep(0.001)
                clock.now_s += 1.0
            writer.write(chunk("a ", tokens))
        writer.write(DONE)

    said = ask(lambda client: client.stream(BODY), slow, quiet_s=QUIET_S)
    assert said.completion_tokens == 6 and said.wall_s > 4 * QUIET_S


def test_a_request_waits_for_its_turn_while_the_prompts_before_it_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """16 prompts at once, one after another in 10 s each: the last has its token after 160 s, the engine is sound."""
    clock, quiet_s = moved_by_hand(monkeypatch), 300.0
    reads = asyncio.Lock()

    async def one_by_one(writer: asyncio.StreamWriter) -> None:
        async with reads:
            for _ in range(10):
                await asyncio.sleep(0.001)
                clock.now_s += 1.0
            writer.write(said_to_be())

    async def all_at_once(client: Client) -> list[Reply]:
        return await asyncio.gather(*(client.complete(BODY | {"max_tokens": 1}) for _ in range(16)))

    assert max(reply.wall_s for reply in ask(all_at_once, one_by_one, quiet_s=quiet_s)) >= 160


def test_a_request_may_wait_for_its_turn_but_not_trickle_from_then_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 6 tokens that are asked there are ever more, 5 s each: 132 s after the first, which came after 200 s."""
    clock, ends_s = moved_by_hand(monkeypatch), []

    async def trickle(writer: asyncio.StreamWriter) -> None:
        writer.write(HEAD)
        for second in range(10**6):
            await asyncio.sleep(0.001)
            clock.now_s += 1.0
            if second >= 200 and second % 5 == 0:
                writer.write(chunk("a ", 1))

    async def timed(client: Client) -> Any:
        begun_s = clock.now_s
        try:
            return await client.stream(BODY)
        finally:
            ends_s.append(clock.now_s - begun_s)

    with pytest.raises(Unanswered, match="not answered in 132 s from its turn on"):
        ask(timed, trickle, quiet_s=300.0)
    assert 200 + 132 < ends_s[0] < 200 + 132 + 30


def test_a_request_whose_turn_was_due_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody counts its tokens, so it has the benefit of the doubt: for 20 s as the only one in flight, and 132 s."""
    clock, begun_s = moved_by_hand(monkeypatch), 1000.0
    monkeypatch.setattr("tasks.client.client.LOOKS", 2000)  # every 10 ms by the loop's clock, which is real

    async def never(_: asyncio.StreamWriter) -> None:
        while True:
            await asyncio.sleep(0.01)
            clock.now_s += 1.0

    with pytest.raises(Unanswered, match="not answered in 132 s from its turn on"):
        ask(lambda client: client.complete(BODY), never, page("# nothing is counted\n"), quiet_s=QUIET_S)
    assert 20 + 132 < clock.now_s - begun_s < 20 + 132 + 30


def entry(*logprobs: float) -> dict[str, Any]:
    return {"token": "a", "logprob": logprobs[0], "top_logprobs": [{"token": "a", "logprob": p} for p in logprobs]}


def test_a_base_models_prompt_is_sent_as_a_text_and_its_answer_read_as_a_chats() -> None:
    base = MODEL.model_copy(update={"chat": False})
    body = request_body(
        base, Technique(name="ar", method="ar"), Prompt("a b", {"x": 1}), 6, fixed=True, logprobs="top2"
    )
    assert (body["prompt"], {"messages", "chat_template_kwargs"} & set(body)) == ("a b", set())
    told = {
        "token_logprobs": [-2.25, -0.5],
        "top_logprobs": [{"token_id:1": -2.25, "token_id:2": -0.25}, {"x": -0.5, "y": -1.5}],
    }
    choice = {"text": " c d", "finish_reason": "length", "logprobs": told, "token_ids": [1, 2]}

    async def complete(client: Client) -> Reply:
        ready = client.ready(body)
        assert ready.data.startswith(b"POST /v1/completions ")
        return await client.complete(body)

    reply = ask(complete, said_to_be(choices=[choice]))
    assert (reply.body, reply.reasoning, reply.top2_gap, reply.mean_logprob) == (" c d", "", [2.0, 1.0], -1.375)


def test_the_gap_is_between_the_two_best_whichever_was_sampled() -> None:
    choice = {"token_ids": [5, 6], "logprobs": {"content": [entry(-0.25, -2.25), entry(-1.5, -0.5)]}}
    assert top2_gaps(choice) == [2.0, 1.0]
    for untold in ({}, {"logprobs": None}, {"logprobs": {"content": None}}):
        assert top2_gaps(untold) is None


@pytest.mark.parametrize(
    ("choice", "said"),
    [
        ({"token_ids": [5, 6], "logprobs": {"content": [entry(-1, -2)]}}, "2 token ids and 1 logprobs"),
        ({"logprobs": {"content": [entry(-1)]}}, "1 of 1 output tokens came without their two best"),
    ],
)
def test_logprobs_that_can_not_be_laid_beside_the_tokens_are_an_error(choice: dict[str, Any], said: str) -> None:
    with pytest.raises(RequestFailed, match=said):
        top2_gaps(choice)


def test_the_mean_is_over_all_tokens_and_one_impossible_token_does_not_decide_it() -> None:
    choice = {"logprobs": {"content": [{"token": "a", "logprob": -1.0}] * 99 + [{"token": "b", "logprob": -9999.0}]}}
    assert mean_logprob(choice) == pytest.approx(-1.99)
    for untold in ({}, {"logprobs": None}, {"logprobs": {"content": []}}):
        assert mean_logprob(untold) is None


def test_of_dummy_weights_no_logprobs_are_asked() -> None:
    written = {"fixed": True, "logprobs": "written"}
    models = [load_model(name) for name in ("gemma-4-31b", "gemma-4-31b-shape")]
    asked = [request_body(model, load_technique("ar"), Prompt("Hi"), 8, **written) for model in models]
    assert [body.get("logprobs") for body in asked] == [True, None]
