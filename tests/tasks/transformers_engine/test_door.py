"""The transformers engine's door, real HTTP, in front of a fake that computes: our own client finds vLLM's."""

import asyncio
import json
import socket
import threading
from collections.abc import Callable, Iterator, Sequence
from types import SimpleNamespace
from typing import Any, NamedTuple

import httpx
import pytest

from configs.cell import Serving
from configs.load import load_model, load_technique
from tasks import meters
from tasks.client import Client, RequestFailed
from tasks.engine.server import free_port
from tasks.guards import tokens as guards
from tasks.prompts import Prompt
from tasks.transformers_engine.arguments import parse
from tasks.transformers_engine.asked import Asked
from tasks.transformers_engine.door import Server
from tasks.transformers_engine.turns import Counters, Logprob, Turns
from tasks.transformers_engine.writing import CHANNELS, Channel, Text, Writer
from tests.busy_machine import PATIENCE_S

K = 4
MODEL, TECHNIQUE, AR = load_model("tiny-gemma4"), load_technique("draft_model"), load_technique("ar")
END_OF_TURN, START, END = 3, 1, 2
MARKS = {"<|channel>": START, "<channel|>": END}


class FakeGenerator:
    """Answers with the last message's words in capitals, a letter being a token; every step accepts all but one."""

    def __init__(self, k: int | None) -> None:
        self.k = k
        self.began: list[str] = []
        self.may_go_on = threading.Event()
        self.may_go_on.set()
        self.fails: Exception | None = None

    def tokens_of(self, wanted: Asked) -> list[int]:
        return [9, *wanted.messages[-1]["content"].encode()]

    def decode(self, token_ids: Sequence[int]) -> str:
        return bytes(each for each in token_ids if each >= 10).decode(errors="replace")

    def token_text(self, token: int) -> str:
        return chr(token)

    def id_of(self, token: str) -> int:
        return MARKS[token]

    def ends(self, token: int) -> bool:
        return token == END_OF_TURN

    def generate(
        self,
        prompt: Sequence[int],
        asked: Asked,
        max_tokens: int,
        on_draft: Callable[[int, int], None],
        on_tokens: Callable[[list[int]], bool],
    ) -> list[Logprob] | None:
        words = bytes(prompt[1:]).upper()
        self.began.append(words.decode())
        answer = [START, *b"thought\nhm", END, *words, END_OF_TURN]
        if asked.ignore_eos:
            answer += [*words] * max_tokens
        answer = answer[:max_tokens]
        written: list[int] = []
        while len(written) < len(answer):
            assert self.may_go_on.wait(PATIENCE_S)
            if self.fails is not None:
                raise self.fails
            drafted = min(self.k or 0, len(answer) - len(written) - 1)
            accepted = max(0, drafted - 1)
            new = answer[len(written) : len(written) + accepted + 1]
            on_draft(drafted, accepted)
            written += new
            if on_tokens(new):
                break
        if asked.top_logprobs is None:
            return None
        return [Logprob(each, -0.5, [(each, -0.5), (7, -2.0)]) for each in written]


def ask(text: str, **more: Any) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": text}], "temperature": 0, **more}


class Served(NamedTuple):
    generator: FakeGenerator
    url: str
    died: threading.Event
    http: httpx.Client


Serve = Callable[..., Served]


@pytest.fixture
def serve() -> Iterator[Serve]:
    running: list[tuple[Server, threading.Thread, httpx.Client]] = []

    def start(*more: str) -> Served:
        port = free_port()
        base = ["--model", "m", "--served-model-name", "tiny-gemma4", "--port", str(port), "--max-model-len", "200"]
        said = parse([*base, "--reasoning-parser", "gemma4", *more])
        generator, died = FakeGenerator(said.k), threading.Event()
        counters = Counters(said.served_model_name, said.k)
        turns = Turns(generator, counters, said.k, die=died.set)
        memory = SimpleNamespace(gauges=lambda: {'transformers:weights_bytes{of="target"}': 12.0})
        server = Server(said, generator, memory, counters, turns, "5.19.0")  # type: ignore[arg-type]
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        turns.start()
        thread.start()
        url = f"http://127.0.0.1:{said.port}"
        http = httpx.Client(base_url=url, trust_env=False, timeout=30)
        running.append((server, thread, http))
        return Served(generator, url, died, http)

    yield start
    for server, thread, http in running:
        http.close()
        server.shutdown()
        thread.join()
        server.server_close()


DRAFTS = ("--assistant-model", "d", "--num-assistant-tokens", str(K))


def client_of(served: Served) -> Client:
    return Client(served.url, MODEL, TECHNIQUE)


async def test_an_answer_says_what_was_written_and_how_many_tokens_it_took(serve: Serve) -> None:
    prompt = Prompt("red fox")
    async with client_of(serve(*DRAFTS)) as client:
        body = client.request(prompt, 40, fixed=False, token_ids=True, logprobs="top2")
        reply, counted = await client.complete(body), await client.count_tokens(prompt)
    assert (reply.reasoning, reply.body, reply.finish_reason) == ("hm", "RED FOX", "stop")
    assert reply.completion_tokens == len(reply.token_ids) == len(reply.top2_gap) == 12 + 7 + 1, "its end token, too"
    assert reply.mean_logprob == -0.5 and reply.top2_gap[0] == 1.5
    assert reply.prompt_tokens == counted == 8


async def test_a_draft_that_outgrew_its_k_is_counted_in_full(serve: Serve) -> None:
    served = serve(*DRAFTS, "--num-assistant-tokens-schedule", "heuristic")
    served.generator.k = K + 3  # as `generate` grows it after drafts that were kept whole
    async with client_of(served) as client:
        reply = await client.complete(client.request(Prompt("red fox"), 17, fixed=True))
        counted = meters.parse(await client.text("/metrics"))
    assert reply.completion_tokens == 17, "steps of 7, 7, 2 and 1"
    assert (counted.drafts, counted.accepted_tokens) == (3, 6 + 6 + 1)
    assert counted.accepted_by_position == (3, 2, 2, 2, 2, 2)
    assert reply.engine.accepted_histogram == [0, 1, 0, 0, 0, 0, 2]


async def test_a_stream_is_its_whole_twin_in_steps(serve: Serve) -> None:
    async with client_of(serve(*DRAFTS)) as client:
        body = client.request(Prompt("red fox"), 40, fixed=True)
        whole, stream = await client.complete(body), await client.stream(body)
    assert stream.text == whole.reasoning + whole.body
    assert stream.completion_tokens == whole.completion_tokens == 40 and stream.finish_reason == "length"
    assert stream.largest_chunk_tokens == K and stream.chunks == 11, "a step is a chunk: one and those accepted"
    assert stream.engine.draft_steps == whole.engine.draft_steps == stream.chunks - 1, "the last token has none"
    assert stream.engine.ttft_ms is not None and stream.engine.queue_ms is not None


@pytest.mark.parametrize("drafts", [True, False])
async def test_our_guards_find_counters_that_agree_with_the_answers(serve: Serve, drafts: bool) -> None:
    async with client_of(serve(*(DRAFTS if drafts else ()))) as client:
        before = meters.parse(await client.text("/metrics"))
        body = client.request(Prompt("a quick brown fox"), 33, fixed=True)
        replies = [await client.complete(body) for _ in range(3)]
        counted = meters.parse(await client.text("/metrics")).since(before)
    technique = TECHNIQUE if drafts else AR
    rows = [
        {"completion_tokens": reply.completion_tokens}
        | {f"engine_{name}": getattr(reply.engine, name) for name in ("draft_steps", "draft_tokens", "accepted_tokens")}
        for reply in replies
    ]
    assert counted.requests_finished == 3
    assert guards.token_mismatch(3 * 33, counted) is None
    assert guards.counters_vanished(technique, counted) is None
    assert guards.acceptance_mismatch(K, rows, counted) is None
    assert guards.acceptance_out_of_range(K, counted) is None
    assert guards.dead_draft(technique, counted) is None
    if drafts:
        assert counted.accepted_by_position is not None and len(counted.accepted_by_position) == K
        assert sum(counted.accepted_by_position) == counted.accepted_tokens
        assert counted.draft_tokens is not None and counted.drafts is not None
        assert K * (counted.drafts - 3) < counted.draft_tokens <= K * counted.drafts, "fewer only at an answer's end"
    else:
        assert counted.drafts is None and rows[0]["engine_draft_steps"] is None


async def test_requests_wait_for_each_other_in_the_order_in_which_they_came(serve: Serve) -> None:
    served, sent = serve(), list[Any]()
    served.generator.may_go_on.clear()
    async with client_of(served) as client:
        for name in ("one", "two", "three"):
            body = client.request(Prompt(name), 30, fixed=False)
            sent.append(asyncio.create_task(client.complete(body)))
            waiting = f"vllm:num_requests_waiting {len(sent) - 1}\n"
            while not served.generator.began or waiting not in await client.text("/metrics"):
                await asyncio.wait(sent, timeout=0)
        served.generator.may_go_on.set()
        replies = await asyncio.gather(*sent)
    assert served.generator.began == ["ONE", "TWO", "THREE"]
    assert [reply.body for reply in replies] == ["ONE", "TWO", "THREE"]


def test_whoever_hangs_up_is_no_longer_answered(serve: Serve) -> None:
    served = serve()
    served.generator.may_go_on.clear()
    host, port = served.url.removeprefix("http://").split(":")
    data = json.dumps(ask("first", max_tokens=150, ignore_eos=True)).encode()
    head = f"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-length: {len(data)}\r\n\r\n".encode()
    with socket.create_connection((host, int(port))) as connection:
        connection.sendall(head + data)
        while not served.generator.began:
            served.http.get("/health")
    served.generator.may_go_on.set()
    second = served.http.post("/v1/chat/completions", json=ask("second", max_tokens=30))
    assert second.json()["choices"][0]["message"]["content"] == "SECOND"
    page = served.http.get("/metrics").text
    assert 'finished_reason="abort"} 1' in page
    tokens = meters.parse(page).generation_tokens
    assert tokens is not None and tokens < 150, "it was ended amid its answer"


def test_what_it_cannot_do_is_refused_with_the_field_and_the_remedy(serve: Serve) -> None:
    served = serve()

    def refused(**more: Any) -> str:
        answer = served.http.post("/v1/chat/completions", json=ask("hello", **more))
        assert answer.status_code == 400
        return str(answer.json()["error"]["message"])

    assert refused(n=2).startswith("n: 2 is not supported")
    assert refused(max_tokens=500).startswith("max_tokens: 6 tokens of prompt and 500 of answer")
    assert refused(max_tokens=0) == "max_tokens: 0 given; accepted: 1 or more"
    assert refused(temperature="hot") == "temperature: 'hot' given; accepted: a number"
    assert served.http.post("/v1/embeddings", json={}).status_code == 404


async def test_an_error_is_told_and_a_card_that_is_lost_ends_the_engine(serve: Serve, capfd: Any) -> None:
    served = serve()
    served.generator.fails = ValueError("shapes differ")
    async with client_of(served) as client:
        for ask_for in (client.complete, client.stream):
            with pytest.raises(RequestFailed, match="shapes differ"):
                await ask_for(client.request(Prompt("x"), 5, fixed=True))
    assert not served.died.is_set()
    served.generator.fails = RuntimeError("CUDA error: an illegal memory access was encountered")
    assert served.http.post("/v1/chat/completions", json=ask("x")).status_code == 500
    assert served.died.wait(PATIENCE_S)
    assert "ValueError: shapes differ" in capfd.readouterr().err, "the engine's log has the cause"


def test_it_says_who_it_is_and_what_it_holds(serve: Serve) -> None:
    served = serve()
    assert served.http.get("/health").status_code == 200
    assert served.http.get("/version").json() == {"version": "5.19.0"}
    assert served.http.get("/v1/models").json()["data"][0]["id"] == "tiny-gemma4"
    page = served.http.get("/metrics").text
    assert 'transformers:weights_bytes{of="target"} 12' in page
    counted = meters.parse(page)
    assert (counted.prefix_hits, counted.preemptions, counted.drafts) == (0, 0, None)
    assert guards.prefix_cache_hit(counted, Serving(max_model_len=200)) is None


@pytest.mark.parametrize(
    "more",
    [
        ("--assistant-model", "d"),
        ("--num-assistant-tokens", "4"),
        ("--assistant-model", "d", "--num-assistant-tokens", "4", "--prompt-lookup-num-tokens", "4"),
        ("--num-assistant-tokens", "0", "--assistant-model", "d"),
        ("--reasoning-parser", "nobody's"),
        ("--speculative-config", "{}"),
    ],
)
def test_what_contradicts_itself_does_not_start(more: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        parse(["--model", "m", "--served-model-name", "n", "--max-model-len", "64", *more])
    assert "error:" in capsys.readouterr().err


def decode(ids: Sequence[int]) -> str:
    """Ids are bytes; those below 10 are special, and no text."""
    return bytes(each for each in ids if each >= 10).decode(errors="replace")


def said(writer: Writer, text: bytes, size: int) -> tuple[list[Text], Text]:
    """What each step of `size` tokens showed, and all of it."""
    steps = [writer.push(list(text[at : at + size])) for at in range(0, len(text), size)]
    steps.append(writer.end())
    return steps, Text("".join(each.reasoning for each in steps), "".join(each.content for each in steps))


def gemma(prompt: bytes = b"") -> Channel:
    return Channel.of(CHANNELS["gemma4"], MARKS.__getitem__, prompt)


@pytest.mark.parametrize("size", [1, 2, 5, 100])
def test_text_is_the_same_however_many_tokens_a_step_brings(size: int) -> None:
    thought = bytes([START]) + b"thought\nred + blue" + bytes([END]) + "Größe 42 \N{MONKEY}".encode()
    steps, whole = said(Writer(decode, gemma()), thought, size)
    assert whole == Text("red + blue", "Größe 42 \N{MONKEY}")
    assert not any("\N{REPLACEMENT CHARACTER}" in each.content for each in steps), "half a character is held back"


def test_thinking_goes_on_from_a_prompt_that_opens_it_and_loses_only_its_whole_label() -> None:
    _, inside = said(Writer(decode, gemma(bytes([START]))), b"why" + bytes([END]) + b"so", 1)
    _, closed = said(Writer(decode, gemma(bytes([START, END]))), b"so", 1)
    assert (inside, closed) == (Text("why", "so"), Text("", "so"))
    _, whole = said(Writer(decode, gemma()), bytes([START]) + b"thought\nhm", 3)
    assert whole == Text("hm", ""), "thinking that never ends is no answer"
    _, whole = said(Writer(decode, gemma()), bytes([START]) + b"though" + bytes([END]) + b"thought\n", 1)
    assert whole == Text("though", "thought\n"), "a label is taken off only where it is whole"


@pytest.mark.parametrize("size", [1, 3, 100])
def test_an_answer_ends_before_its_stop_string(size: int) -> None:
    writer = Writer(decode, stop=["\n\nQ:", "END"])
    steps, whole = said(writer, b"one\n\ntwo EN three\n\nQ: and END", size)
    assert (whole.content, writer.stopped_by) == ("one\n\ntwo EN three", "\n\nQ:")
    assert "\n\nQ" not in "".join(each.content for each in steps)
    writer = Writer(decode, stop=["END"])
    _, whole = said(writer, b"the EN", 1)
    assert (whole.content, writer.stopped_by) == ("the EN", None), "it only began like one"
