"""What the response log's tests share: a cell, a store in memory, a client, and a FAKE engine in their own loop."""

import asyncio
import io
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Self

import aiohttp
from aiohttp import web

from configs.cell import Cell, Engine, Model, Precision, Serving, Technique
from configs.steps.eval import EvalStep
from tasks.evals.exchange import Policy, policy_of
from tasks.evals.response_log import ResponseLog
from tests.busy_machine import PATIENCE_S
from warehouse.ledger.tables import Row

SUITE = "eval-gpqa"


def cell(model: str = "m", *, greedy: bool = True, technique: str = "ar", max_num_seqs: int | None = None) -> Cell:
    thinks = {"enable_thinking": True}
    named = Model(
        name=model, family="f", hub_id="some/model", total_params_b=1, active_params_b=1, chat_template_kwargs=thinks
    )
    return Cell(
        model=named,
        precision=Precision(name="bf16", bytes_per_param=2),
        technique=Technique(name=technique, method="ar", greedy=greedy),
        engine=Engine(name="fake"),
        serving=Serving(max_model_len=65536, max_num_seqs=max_num_seqs),
    )


def spec(**fields: Any) -> EvalStep:
    return EvalStep(step="eval-gpqa", **fields)


POLICY = policy_of(cell(), spec(seed=7))


Script = Callable[[Mapping[str, Any]], "dict[str, Any] | int"]


def answer(content: str | None, finish_reason: str = "stop", tokens: int = 5, **choice: Any) -> dict[str, Any]:
    """A chat completion as vLLM shapes it."""
    message = {"role": "assistant", "content": content, "reasoning": "hm", "refusal": None}
    choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": finish_reason, **choice}
    usage = {"prompt_tokens": 3, "completion_tokens": tokens, "total_tokens": 3 + tokens}
    document = {"id": "chatcmpl-1", "object": "chat.completion", "created": 1, "model": "m"}
    return {**document, "choices": [choice], "usage": usage}


def last_word(body: Mapping[str, Any]) -> dict[str, Any]:
    return answer(body["messages"][-1]["content"].split()[-1])


class FakeUpstream:
    """The engine, from `async with` on: it counts what it is asked, and answers as its script says.

    `script` gets the request and answers with a message, an HTTP status or a whole document; by default with the last
    word of the prompt. While `held` is set, requests wait: the test decides when they are answered.
    """

    def __init__(self, script: Script = last_word) -> None:
        self.script: Script = script
        self.asked: list[dict[str, Any]] = []
        self.hung_up = 0
        self.generated: int | None = 0
        self.held = False
        self._let_go = asyncio.Condition()

    async def __aenter__(self) -> Self:
        app = web.Application(client_max_size=20 * 2**20)
        app.router.add_post("/v1/chat/completions", self._chat)
        app.router.add_get("/metrics", self._metrics)
        app.router.add_get("/health", self._health)
        app.router.add_get("/v1/models", self._models)
        self._runner = web.AppRunner(app, access_log=None, handler_cancellation=True, shutdown_timeout=0.1)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0).start()
        self.url = f"http://127.0.0.1:{self._runner.addresses[0][1]}"
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.die()

    async def die(self) -> None:
        """Break off every request and refuse new ones."""
        await self._runner.cleanup()

    async def asked_for(self, requests: int) -> None:
        async with asyncio.timeout(PATIENCE_S), self._let_go:
            await self._let_go.wait_for(lambda: len(self.asked) >= requests)

    async def was_left(self, requests: int) -> None:
        async with asyncio.timeout(PATIENCE_S), self._let_go:
            await self._let_go.wait_for(lambda: self.hung_up >= requests)

    async def let_go(self) -> None:
        """Answer what is held, and whatever comes."""
        async with self._let_go:
            self.held = False
            self._let_go.notify_all()

    async def _chat(self, request: web.Request) -> web.Response:
        body = await request.json()
        async with self._let_go:
            self.asked.append(body)
            self._let_go.notify_all()
            try:
                await self._let_go.wait_for(lambda: not self.held)
            except asyncio.CancelledError:
                self.hung_up += 1
                self._let_go.notify_all()
                raise
        said = self.script(body)
        if isinstance(said, int):
            return web.json_response({"error": {"message": "no", "code": said}}, status=said)
        return web.json_response(said)

    async def _metrics(self, _: web.Request) -> web.Response:
        line = "" if self.generated is None else f'vllm:generation_tokens_total{{engine="0"}} {self.generated}\n'
        return web.Response(text=line)

    async def _health(self, _: web.Request) -> web.Response:
        return web.Response()

    async def _models(self, _: web.Request) -> web.Response:
        return web.json_response({"object": "list", "data": [{"id": "m"}]})


class FakeStore:
    """Parts in memory. `broken`: what the next writes raise."""

    def __init__(self) -> None:
        self.parts: list[list[Row]] = []
        self.broken: Exception | None = None

    async def write(self, rows: Sequence[Row]) -> None:
        if self.broken:
            raise self.broken
        self.parts.append(list(rows))

    @property
    def rows(self) -> list[Row]:
        return [row for part in self.parts for row in part]


def response_log(
    engine: FakeUpstream, store: FakeStore, known: Sequence[Row] = (), policy: Policy = POLICY, **options: Any
) -> ResponseLog:
    return ResponseLog(engine.url, policy, SUITE, known, store.write, **options)


async def post(url: str, body: Any) -> tuple[int, dict[str, Any]]:
    """The status and the document of a chat request; bytes are sent as they are."""
    data = io.BytesIO(body if isinstance(body, bytes) else json.dumps(body).encode())
    async with aiohttp.ClientSession() as session, session.post(f"{url}/chat/completions", data=data) as response:
        return response.status, await response.json()


def question(text: str, **fields: Any) -> dict[str, Any]:
    return {"model": "whatever", "messages": [{"role": "user", "content": text}], **fields}


async def ask(response_log: ResponseLog, text: str, sample: int = 0, **fields: Any) -> str | None:
    status, document = await post(response_log.url(sample), question(text, **fields))
    assert status == 200, document
    content: str | None = document["choices"][0]["message"]["content"]
    return content
