"""Answers decoded: what was said, how many tokens it took, and when they came."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from itertools import pairwise
from typing import Any, NamedTuple

from tasks.client.engine_truth import EngineTruth, engine_truth
from tasks.client.failures import RequestFailed
from tasks.client.heard import Heard
from tasks.client.logprobs import mean_logprob, top2_gaps


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
    engine: EngineTruth = EngineTruth()
    cached_tokens: int = 0
    """Of the prompt's, those that its usage says came from the cache; an engine that says nothing of it: 0."""


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
    engine: EngineTruth = EngineTruth()
    counts: tuple[tuple[float, int], ...] = ()
    """Of each chunk that carried tokens: when it came, and how many there were with it."""
    token_id_count: int | None = None
    """How many ids came; None: none did, of an engine that doesn't know them."""
    cached_tokens: int = 0
    """As of a `Reply`."""

    @property
    def gaps(self) -> list[tuple[float, int]]:
        """Of each chunk but the first, the seconds since the one before it, and its tokens."""
        return [(later[0] - earlier[0], later[1] - earlier[1]) for earlier, later in pairwise(self.counts)]

    @property
    def tpot_s(self) -> float | None:
        """Seconds per output token after the first chunk, by token counts; None if one chunk held all tokens."""
        later_tokens = self.completion_tokens - self.first_chunk_tokens
        if self.first_token_s is None or self.last_token_s is None or later_tokens <= 0:
            return None
        return (self.last_token_s - self.first_token_s) / later_tokens


def reply_of(heard: Heard) -> Reply:
    """Decode an answer that was not streamed.

    Raises:
        RequestFailed: an error status, no chat completion, or `finish_reason` other than stop and length.
    """
    answer = heard.json()
    with _formed("no chat completion with its usage", answer):
        choice, usage = answer["choices"][0], answer["usage"]
        message, finish_reason = choice["message"], str(choice["finish_reason"])
        if finish_reason not in ("stop", "length"):
            raise RequestFailed(f"the engine ended a request with finish_reason {finish_reason!r}")
        return Reply(
            body=_text(message, "content"),
            reasoning=_text(message, "reasoning") or _text(message, "reasoning_content"),
            finish_reason=finish_reason,
            prompt_tokens=int(usage["prompt_tokens"]),
            completion_tokens=int(usage["completion_tokens"]),
            token_ids=choice.get("token_ids"),
            wall_s=heard.wall_s,
            top2_gap=top2_gaps(choice) if heard.body.get("top_logprobs") else None,
            mean_logprob=mean_logprob(choice),
            engine=engine_truth(answer.get("metrics")),
            cached_tokens=_cached(usage),
        )


def stream_reply_of(heard: Heard) -> StreamReply:
    """Decode a streamed answer; tokens are counted by the engine's running usage, a chunk comes with its last byte.

    Raises:
        RequestFailed: an error status or event, no [DONE], no usage, or `finish_reason` other than stop and length.
    """
    events = heard.events()
    if not events or events[-1][1] != b"[DONE]":
        raise RequestFailed("the stream ended without [DONE]")
    steps: list[tuple[float, int]] = []  # when the running count of tokens rose, and to what
    pieces: list[str] = []
    finish_reason = ""
    prompt_tokens: int | None = None
    engine = EngineTruth()
    cached_tokens = 0
    ids: list[int] = []
    for at_s, data in events[:-1]:
        event = _event(data)
        with _formed("no chunk of a chat completion", event):
            usage = event.get("usage") or {}
            engine = engine_truth(event["metrics"]) if event.get("metrics") else engine
            prompt_tokens = usage.get("prompt_tokens", prompt_tokens)
            cached_tokens = max(cached_tokens, _cached(usage))  # vLLM tells it with the last usage only
            tokens = usage.get("completion_tokens", 0)
            if tokens > (steps[-1][1] if steps else 0):
                steps.append((at_s, tokens))
            for choice in event.get("choices", []):
                if choice.get("token_ids") is not None:
                    ids.append(len(choice["token_ids"]))
                pieces.append(_text(choice.get("delta") or {}, "reasoning", "content"))
                finish_reason = choice.get("finish_reason") or finish_reason
    if finish_reason not in ("stop", "length"):
        raise RequestFailed(f"the engine ended a stream with finish_reason {finish_reason!r}")
    if prompt_tokens is None:
        raise RequestFailed("a stream without usage: nobody can tell its tokens")
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
        wall_s=heard.wall_s,
        engine=engine,
        counts=tuple(steps),
        token_id_count=sum(ids) if ids else None,
        cached_tokens=cached_tokens,
    )


def _cached(usage: Mapping[str, Any]) -> int:
    """Told where vLLM was started with --enable-prompt-tokens-details."""
    return int((usage.get("prompt_tokens_details") or {}).get("cached_tokens") or 0)


def _text(said: Mapping[str, Any], *names: str) -> str:
    return "".join(said.get(name) or "" for name in names)


@contextmanager
def _formed(otherwise: str, answer: object) -> Iterator[None]:
    """Whatever a body has in place of what it should have is a failed request, and no end of the attempt."""
    try:
        yield
    except (AttributeError, KeyError, IndexError, TypeError, ValueError) as error:
        raise RequestFailed(f"{otherwise}: {error!r} in {str(answer)[:300]}") from error


def _event(data: bytes) -> dict[str, Any]:
    try:
        event = json.loads(data)
    except ValueError as error:
        raise RequestFailed(f"a stream's event is no JSON: {data[:200]!r}") from error
    if not isinstance(event, dict):
        raise RequestFailed(f"no chunk of a chat completion: {data[:200]!r}")
    if event.get("error") is not None:
        raise RequestFailed(f"an error inside the stream: {event['error']}")
    return event
