"""The client: OpenAI's completions, of chats or of texts, over httpx, with the clock on the wire and nothing else.

Requests are encoded before they are sent (`ready`), answers are decoded after they came (`replies`): what is timed is
`hear`, and in it nothing but bytes move.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Literal

import httpx

from configs.cell import Model, Technique
from tasks import meters
from tasks.client.replies import Heard, Ready, Reply, RequestFailed, StreamReply, Unanswered, reply_of, stream_reply_of
from tasks.prompts import Prompt
from tasks.wire.connection import PATIENCE, Patience
from tasks.wire.transport import Transport, encoded

STREAM = {
    "stream": True,
    "stream_options": {"include_usage": True, "continuous_usage_stats": True},
    "return_token_ids": True,
}
"""What a streamed request asks for: running usage in each chunk, and token ids.

vLLM 0.32.0 sends a chunk of a step whose text its reasoning parser keeps only if ids or probabilities were asked for
(`entrypoints/openai/chat_completion/serving.py`). Gemma 4's thinking begins with three such tokens: the first that was
seen came with AR's fourth step and a draft's second. The prompt's ids come with the chunk of the role, just before the
first token. They cost 54 kB and 0.3 ms of the server at 8k, 216 kB and 1 ms at 32k, in every arm (2026-11-24, one
core). Prefills take hundreds of times as long.
"""


def request_body(
    model: Model,
    technique: Technique,
    prompt: Prompt,
    max_tokens: int,
    *,
    fixed: bool,
    token_ids: bool = False,
    logprobs: Literal["written", "top2"] | None = None,
) -> dict[str, Any]:
    """The body of a request of `max_tokens` output tokens: with `fixed` exactly so many, the end token is ignored.

    A base model (`chat: false`) gets the prompt as a text to be continued, any other as a chat. `logprobs` asks for
    the probability of each written token, which becomes `Reply.mean_logprob`; with top2 also for the two best at each
    place, which become `Reply.top2_gap`. It is work: no timed request asks.
    """
    body: dict[str, Any] = {
        "model": model.name,
        **({"messages": [{"role": "user", "content": prompt.text}]} if model.chat else {"prompt": prompt.text}),
        "max_tokens": max_tokens,
    }
    if technique.greedy:  # block diffusion refuses any temperature
        body["temperature"] = 0
    template_kwargs = {**model.chat_template_kwargs, **prompt.template_kwargs}
    if template_kwargs and model.chat:
        body["chat_template_kwargs"] = template_kwargs
    if fixed:
        body["ignore_eos"] = True
    if token_ids:
        body["return_token_ids"] = True
    if logprobs and model.weights == "real":  # of what dummy weights write nobody asks how probable it is
        body |= LOGPROBS[model.chat, logprobs]
    return body


LOGPROBS: Mapping[tuple[bool, str], Mapping[str, Any]] = {
    (True, "written"): {"logprobs": True},
    (True, "top2"): {"logprobs": True, "top_logprobs": 2},
    (False, "written"): {"logprobs": 0},
    (False, "top2"): {"logprobs": 2, "return_tokens_as_token_ids": True},
}
"""How probabilities are asked for, by whether it is a chat. Completions answer with candidates by their text, in which
two tokens may be alike: hence their ids."""


def path_of(body: Mapping[str, Any]) -> str:
    """Where such a body is sent."""
    return "/v1/chat/completions" if "messages" in body else "/v1/completions"


def streamed(body: Mapping[str, Any]) -> dict[str, Any]:
    """The same body for an answer that comes as it is made."""
    return {**body, **STREAM}


LOOK_AFTER_SHARE = 0.2  # share of the quiet time that is waited before the first look: 60 s of 300
LOOKS = 20  # looks within a quiet time: every 15 s of 300

CLIENT_VERSION = 3
"""Of the instrument, on every row that it times; raised when what it says of the same engine changes. None: before
it had a version, with httpx's own transport until 2026-11-22. 2: our own, with its clock on the wire.
3: streams ask for token ids, so a first token that the reasoning parser hides is seen (see `STREAM`)."""

BASE_TIMEOUT_S = 120.0  # that any request may take from its turn on; its output may take more, by `SLOWEST_TOK_S`
SLOWEST_TOK_S = 0.5  # no engine worth measuring is slower on one request: it bounds an answer that trickles
PAGE_S = 30.0  # a busy engine may take this long to show a page, e.g. `/metrics`
HEADERS = {"accept-encoding": "identity"}  # compression would be in the time

JSON_HEADERS = {"content-type": "application/json"}


class Client:
    """Requests to one engine, as one cell must send them."""

    def __init__(self, base_url: str, model: Model, technique: Technique, patience: Patience = PATIENCE) -> None:
        """`patience`: how long a request may stand still; its whole time is bounded by its own length."""
        self.base_url = base_url
        self.request = partial(request_body, model, technique)
        self._patience = patience
        self._wire = Transport()
        # the engine is on loopback: no proxy from the environment
        self._http = httpx.AsyncClient(base_url=base_url, trust_env=False, transport=self._wire, headers=HEADERS)
        self._looking: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Client:
        self._looking = asyncio.create_task(self._keep_looking())
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._looking is not None:
            self._looking.cancel()
            await asyncio.wait([self._looking])
        await self._http.aclose()
        if self._looking is not None and not self._looking.cancelled():
            self._looking.result()  # it never ends by itself: what ended it is told

    async def _keep_looking(self) -> None:
        """Tell the transport of the engine's progress while its requests are quiet; does not return.

        A whole answer may take half an hour, and its connection doesn't tell a long one from a lost one. So the
        engine's counter of tokens is read, but only once a request has been quiet for long: for requests that take
        seconds, never. Without a counter the bound on the whole request ends it.
        """
        quiet_s = self._patience.quiet_s
        if quiet_s is None:
            return
        seen: float | None = None
        while True:
            await asyncio.sleep(quiet_s / LOOKS)
            if self._wire.quietest_s() < LOOK_AFTER_SHARE * quiet_s:
                continue
            try:
                tokens = meters.parse(await self.text("/metrics")).generation_tokens
            except RequestFailed:
                continue  # no page, no progress: the requests' own patience goes on running out
            if tokens is None or tokens != seen:
                self._wire.still_working()
            seen = tokens

    async def connect(self, number: int) -> None:
        """Have so many connections open and idle, just before a clock starts. Raises Unanswered: nobody listens."""
        try:
            await self._wire.connect(self._http.base_url, number)
        except httpx.TransportError as error:
            raise Unanswered(f"no connection to {self.base_url}: {error}") from error

    def ready(self, body: Mapping[str, Any], *, streams: bool = False) -> Ready:
        """A request, encoded; a streamed one asks for what `STREAM` says."""
        sent = streamed(body) if streams else body
        whole_s = BASE_TIMEOUT_S + float(body["max_tokens"]) / SLOWEST_TOK_S
        # a quiet time is what one prompt may take
        patience = self._patience._replace(whole_s=whole_s, turn_s=self._patience.quiet_s or 0.0)
        return self._ready(path_of(body), sent, body, streams, patience)

    async def hear(self, ready: Ready) -> Heard:
        """Send a request and collect its answer, whatever its status; nothing is decoded.

        Raises Unanswered: no connection, or no progress. RequestFailed: the answer was cut short, or is no HTTP.
        """
        try:
            answer, ended_s = await self._wire.exchange(self._http.base_url, ready.data, ready.patience)
        except (httpx.TimeoutException, httpx.ConnectError) as error:
            raise Unanswered(f"{self._name(ready)}: {error}") from error
        except httpx.TransportError as error:
            raise RequestFailed(f"{self._name(ready)}: {error}") from error
        return Heard(ready.body, answer.status, answer.content, answer.arrivals(ended_s))

    async def complete(self, body: Mapping[str, Any]) -> Reply:
        """Send one non-streamed request. Raises RequestFailed as `hear` and `reply_of` do."""
        return reply_of(await self.hear(self.ready(body)))

    async def complete_all(self, bodies: Sequence[Mapping[str, Any]], at_once: int) -> list[Reply]:
        """Replies to non-streamed requests in their order, `at_once` in flight. Raises RequestFailed with the first."""
        slots = asyncio.Semaphore(at_once)

        async def one(body: Mapping[str, Any]) -> Reply:
            async with slots:
                return await self.complete(body)

        return await asyncio.gather(*map(one, bodies))

    async def stream(self, body: Mapping[str, Any]) -> StreamReply:
        """Send one streamed request. Raises RequestFailed as `hear` and `stream_reply_of` do."""
        return stream_reply_of(await self.hear(self.ready(body, streams=True)))

    async def count_tokens(self, prompt: Prompt) -> int:
        """Tokens of a prompt as the engine's own tokenizer and chat template make them, generation prompt included.

        vLLM's `/tokenize` (0.32.0, `entrypoints/serve/tokenize/`) takes `messages` and renders them as chat does, or a
        `prompt`, to which it adds what completions do, such as a first token.
        Raises RequestFailed: no answer, an error status (an engine without `/tokenize` has 404), or no count.
        """
        body = self.request(prompt, 1, fixed=False)
        told = ("model", "messages", "chat_template_kwargs", "prompt")
        wanted: dict[str, Any] = {name: body[name] for name in told if name in body}
        if "messages" in wanted:
            wanted["add_generation_prompt"] = True
        try:
            patience = self._patience._replace(whole_s=BASE_TIMEOUT_S)
            answer = (await self.hear(self._ready("/tokenize", wanted, wanted, False, patience))).json()
        except RequestFailed as error:
            need = "prompts are cut to length by the engine's own tokenizer: serve with one that has it, as vLLM does"
            raise RequestFailed(f"/tokenize of {self._http.base_url}: {error}; {need}") from error
        if not isinstance(answer.get("count"), int):
            raise RequestFailed(f"/tokenize of {self._http.base_url} answered without a count: {str(answer)[:300]}")
        return int(answer["count"])

    async def text(self, path: str) -> str:
        """The text of a GET, e.g. `/metrics`. Raises RequestFailed: no answer, or an error status."""
        patience = Patience(quiet_s=PAGE_S, whole_s=PAGE_S)
        try:
            response = await self._http.get(path, extensions={"patience": patience})
        except httpx.TransportError as error:
            raise RequestFailed(f"no answer from {self._http.base_url}{path}: {error!r}") from error
        if response.status_code != 200:
            raise RequestFailed(f"HTTP {response.status_code} from {path}")
        return response.text

    def _ready(
        self, path: str, sent: Mapping[str, Any], body: Mapping[str, Any], streams: bool, patience: Patience
    ) -> Ready:
        request = self._http.build_request("POST", path, content=json.dumps(sent).encode(), headers=JSON_HEADERS)
        return Ready(encoded(request), body, streams, patience)

    def _name(self, ready: Ready) -> str:
        target = ready.data.split(b" ", 2)[1].decode()
        tokens = f", {ready.body['max_tokens']} tokens asked" if "max_tokens" in ready.body else ""
        return f"POST {self.base_url}{target}{tokens}"
