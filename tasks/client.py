"""The client: OpenAI chat completions over httpx, with the clock around the wire and nothing else.

Requests are encoded before the clock starts, answers are decoded after it stops.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from itertools import pairwise
from types import TracebackType
from typing import Any, Literal, NamedTuple

import httpx

from configs.cell import Model, Technique
from configs.errors import SpecsweepError
from tasks.prompts import Prompt

BASE_TIMEOUT_S = 120.0
"""Time that any request may take; its output may take more on top, by `SLOWEST_TOK_S`."""

SLOWEST_TOK_S = 0.5
"""No engine worth measuring is slower on a single request; it bounds the wait for one answer."""


class RequestFailed(SpecsweepError):
    """An answer that can't be measured: an error status, a broken stream, or a request that the engine gave up."""


class Reply(NamedTuple):
    """One finished, non-streamed answer. `completion_tokens` counts thinking, body and end token.

    `top2_gap` is nats between the best and the second best token at each output token, as `top2_gaps` reads it.
    `mean_logprob` is nats per output token under the model itself, as `mean_logprob` reads it.
    """

    body: str
    reasoning: str
    finish_reason: str
    prompt_tokens: int
    completion_tokens: int
    token_ids: list[int] | None
    wall_s: float
    top2_gap: list[float] | None = None
    mean_logprob: float | None = None


class StreamReply(NamedTuple):
    """One streamed answer. Times run from the request; `first_chunk_tokens` came with the first chunk."""

    text: str
    finish_reason: str
    prompt_tokens: int
    completion_tokens: int
    first_token_s: float | None
    last_token_s: float | None
    first_chunk_tokens: int
    largest_chunk_tokens: int
    chunks: int
    wall_s: float

    @property
    def tpot_s(self) -> float | None:
        """Seconds per output token after the first chunk, by token counts; None if one chunk held all tokens."""
        later_tokens = self.completion_tokens - self.first_chunk_tokens
        if self.first_token_s is None or self.last_token_s is None or later_tokens <= 0:
            return None
        return (self.last_token_s - self.first_token_s) / later_tokens


class Client:
    """Requests to one engine, as one cell must send them."""

    def __init__(self, base_url: str, model: Model, technique: Technique) -> None:
        self.base_url = base_url
        self._model = model
        self._technique = technique
        self._http = httpx.AsyncClient(
            base_url=base_url,
            trust_env=False,  # the engine is on loopback: no proxy from the environment
            # a bounded pool would queue requests here and measure the client: the steps bound what is in flight
            limits=httpx.Limits(max_connections=None, max_keepalive_connections=None),
        )

    async def __aenter__(self) -> Client:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._http.aclose()

    def request(
        self,
        prompt: Prompt,
        max_tokens: int,
        *,
        fixed: bool,
        token_ids: bool = False,
        logprobs: Literal["written", "top2"] | None = None,
    ) -> dict[str, Any]:
        """`request_body` with the model and technique of this cell."""
        return request_body(
            self._model, self._technique, prompt, max_tokens, fixed=fixed, token_ids=token_ids, logprobs=logprobs
        )

    async def complete(self, body: Mapping[str, Any]) -> Reply:
        """Send one non-streamed request.

        Raises:
            RequestFailed: no answer, an error status, or `finish_reason` other than stop and length.
        """
        answer, wall_s = await self._post("/v1/chat/completions", body, _timeout(body))
        return _reply(answer, wall_s, has_top2=bool(body.get("top_logprobs")))

    async def count_tokens(self, prompt: Prompt) -> int:
        """Tokens of a prompt as the engine's own tokenizer and chat template make them, generation prompt included.

        vLLM's `/tokenize` (0.32.0, `entrypoints/serve/tokenize/`) takes `messages` and renders them as chat does.

        Raises:
            RequestFailed: no answer, an error status (an engine without `/tokenize` has 404), or no count.
        """
        body = request_body(self._model, self._technique, prompt, 1, fixed=False)
        wanted: dict[str, Any] = {"add_generation_prompt": True}
        wanted |= {name: body[name] for name in ("model", "messages", "chat_template_kwargs") if name in body}
        try:
            answer, _ = await self._post("/tokenize", wanted, BASE_TIMEOUT_S)
        except RequestFailed as error:
            need = "prompts are cut to length by the engine's own tokenizer: serve with one that has it, as vLLM does"
            raise RequestFailed(f"/tokenize of {self._http.base_url}: {error}; {need}") from error
        if not isinstance(answer.get("count"), int):
            raise RequestFailed(f"/tokenize of {self._http.base_url} answered without a count: {str(answer)[:300]}")
        return int(answer["count"])

    async def _post(self, path: str, body: Mapping[str, Any], timeout_s: float) -> tuple[dict[str, Any], float]:
        """The answer's JSON, and seconds on the wire."""
        content = json.dumps(body).encode()
        started = time.perf_counter()
        try:
            response = await self._http.post(path, content=content, headers=_JSON, timeout=timeout_s)
        except httpx.HTTPError as error:
            raise RequestFailed(f"no answer from {self._http.base_url}: {error!r}") from error
        wall_s = time.perf_counter() - started
        if response.status_code != 200:
            raise RequestFailed(f"HTTP {response.status_code}: {response.text[:300]}")
        answer: dict[str, Any] = response.json()
        return answer, wall_s

    async def stream(self, body: Mapping[str, Any]) -> StreamReply:
        """Send one streamed request and count tokens by the engine's running usage.

        Raises:
            RequestFailed: as for `complete`, or an error event inside the stream, or a stream that was cut short.
        """
        options = {"include_usage": True, "continuous_usage_stats": True}
        content = json.dumps({**body, "stream": True, "stream_options": options}).encode()
        arrivals: list[tuple[float, str]] = []
        started = time.perf_counter()
        try:
            async with self._http.stream(
                "POST", "/v1/chat/completions", content=content, headers=_JSON, timeout=_timeout(body)
            ) as response:
                if response.status_code != 200:
                    raise RequestFailed(f"HTTP {response.status_code}: {(await response.aread())[:300]!r}")
                async for line in response.aiter_lines():
                    if line.startswith("data: "):
                        arrivals.append((time.perf_counter() - started, line[6:]))
        except httpx.HTTPError as error:
            raise RequestFailed(f"the stream broke: {error!r}") from error
        return _stream_reply(arrivals, time.perf_counter() - started)

    async def text(self, path: str) -> str:
        """The text of a GET, e.g. `/metrics`.

        Raises:
            RequestFailed: no answer or an error status.
        """
        try:
            response = await self._http.get(path, timeout=30)
        except httpx.HTTPError as error:
            raise RequestFailed(f"no answer from {self._http.base_url}{path}: {error!r}") from error
        if response.status_code != 200:
            raise RequestFailed(f"HTTP {response.status_code} from {path}")
        return response.text


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
    """The body of a chat request.

    Args:
        model: the target, for its name and chat-template arguments.
        technique: how it decodes; without greedy decoding, no temperature is sent.
        prompt: the user message, and the chat-template arguments it needs on top of the model's own.
        max_tokens: the most output tokens; with `fixed`, their exact number.
        fixed: ignore the end token, so that the output has a fixed length.
        token_ids: ask for the output's token ids.
        logprobs: ask for the probability of each written token, which becomes `Reply.mean_logprob`; with top2 also
            for the two best at each place, which become `Reply.top2_gap`. It is work: no timed request asks.
    """
    body: dict[str, Any] = {
        "model": model.name,
        "messages": [{"role": "user", "content": prompt.text}],
        "max_tokens": max_tokens,
    }
    if technique.greedy:  # block diffusion refuses any temperature
        body["temperature"] = 0
    template_kwargs = {**model.chat_template_kwargs, **prompt.template_kwargs}
    if template_kwargs:
        body["chat_template_kwargs"] = template_kwargs
    if fixed:
        body["ignore_eos"] = True
    if token_ids:
        body["return_token_ids"] = True
    if logprobs and model.weights == "real":  # of what dummy weights write nobody asks how probable it is
        body["logprobs"] = True
    if logprobs == "top2":
        body["top_logprobs"] = 2
    return body


_JSON = {"content-type": "application/json"}


def _timeout(body: Mapping[str, Any]) -> float:
    return BASE_TIMEOUT_S + float(body["max_tokens"]) / SLOWEST_TOK_S


def _reply(answer: dict[str, Any], wall_s: float, has_top2: bool) -> Reply:
    choice, usage = answer["choices"][0], answer["usage"]
    message, finish_reason = choice["message"], str(choice["finish_reason"])
    if finish_reason not in ("stop", "length"):
        raise RequestFailed(f"the engine ended a request with finish_reason {finish_reason!r}")
    return Reply(
        body=message.get("content") or "",
        reasoning=message.get("reasoning") or message.get("reasoning_content") or "",
        finish_reason=finish_reason,
        prompt_tokens=usage["prompt_tokens"],
        completion_tokens=usage["completion_tokens"],
        token_ids=choice.get("token_ids"),
        wall_s=wall_s,
        top2_gap=top2_gaps(choice) if has_top2 else None,
        mean_logprob=mean_logprob(choice),
    )


def top2_gaps(choice: Mapping[str, Any]) -> list[float] | None:
    """Nats between the two best tokens at each output token of a choice; None: the engine sent no logprobs.

    Read in vLLM 0.32.0, with and without speculative decoding (`v1/sample/{sampler,rejection_sampler}.py`,
    `v1/worker/gpu/sample/sampler.py`, `v1/worker/gpu/spec_decode/rejection_sampler.py`,
    `entrypoints/openai/chat_completion/serving.py`):

    - Logprobs are allowed beside a draft and beside `return_token_ids`. There is one entry per output token, thinking
      and end token included: both lists are made of the same `output.token_ids`.
    - They are the target's, taken before temperature and penalties (`logprobs_mode` raw_logprobs, the default), at the
      position where a drafted token was verified, not the draft's. What was drafted and rejected is filtered out.
    - Asking changes no greedy output: log_softmax makes a new tensor, and argmax is taken of the same float32 logits. A
      verification computes the bonus token's logits whether asked or not.
    - The sampled token comes first, then the best ones, cut to two. Where the sampled token isn't the best, the two
      are the best and the sampled one, which is then the wider gap. Hence the order here is by value.

    Raises:
        RequestFailed: a token came without two candidates, or there are more or fewer entries than token ids.
    """
    entries = (choice.get("logprobs") or {}).get("content")
    if entries is None:
        return None
    best = [sorted((each["logprob"] for each in entry["top_logprobs"]), reverse=True) for entry in entries]
    short = sum(len(candidates) < 2 for candidates in best)
    if short:
        raise RequestFailed(f"{short} of {len(best)} output tokens came without their two best: top_logprobs was 2")
    token_ids = choice.get("token_ids")
    if token_ids is not None and len(token_ids) != len(best):
        raise RequestFailed(f"the engine sent {len(token_ids)} token ids and {len(best)} logprobs for one output")
    return [first - second for first, second, *_ in best]


LEAST_LOGPROB = -100.0
"""vLLM writes -9999 for a token of probability 0: one such token must not decide the mean of a thousand others."""


def mean_logprob(choice: Mapping[str, Any]) -> float | None:
    """Mean log-probability of a choice's tokens, in nats; None: the engine sent no logprobs, or there is no token.

    They are the target's before temperature and penalties, whoever drafted the token (see `top2_gaps`). exp(-mean)
    is the perplexity of the output to the model that wrote it.
    """
    entries = (choice.get("logprobs") or {}).get("content")
    if not entries:
        return None
    return sum(max(float(entry["logprob"]), LEAST_LOGPROB) for entry in entries) / len(entries)


def _stream_reply(arrivals: list[tuple[float, str]], wall_s: float) -> StreamReply:
    if not arrivals or arrivals[-1][1] != "[DONE]":
        raise RequestFailed("the stream ended without [DONE]")
    steps: list[tuple[float, int]] = []  # when the running count of tokens rose, and to what
    pieces: list[str] = []
    finish_reason, prompt_tokens = "", 0
    for at_s, data in arrivals[:-1]:
        event = json.loads(data)
        if "error" in event:
            raise RequestFailed(f"an error inside the stream: {event['error']}")
        usage = event.get("usage") or {}
        prompt_tokens = usage.get("prompt_tokens", prompt_tokens)
        tokens = usage.get("completion_tokens", 0)
        if tokens > (steps[-1][1] if steps else 0):
            steps.append((at_s, tokens))
        for choice in event.get("choices", []):
            delta = choice.get("delta") or {}
            pieces.append((delta.get("reasoning") or "") + (delta.get("content") or ""))
            finish_reason = choice.get("finish_reason") or finish_reason
    if finish_reason not in ("stop", "length"):
        raise RequestFailed(f"the engine ended a stream with finish_reason {finish_reason!r}")
    counts = [0, *(tokens for _, tokens in steps)]
    sizes = [later - earlier for earlier, later in pairwise(counts)]
    return StreamReply(
        text="".join(pieces),
        finish_reason=finish_reason,
        prompt_tokens=prompt_tokens,
        completion_tokens=counts[-1],
        first_token_s=steps[0][0] if steps else None,
        last_token_s=steps[-1][0] if steps else None,
        first_chunk_tokens=sizes[0] if sizes else 0,
        largest_chunk_tokens=max(sizes, default=0),
        chunks=len(sizes),
        wall_s=wall_s,
    )
