"""Answers as OpenAI's interface has them, with what vLLM adds: token ids, and the engine's own account of a request."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Sequence
from typing import Any

from tasks.transformers_engine.turns import Done, Logprob, Step

TokenText = Callable[[int], str]
"""A single token as text."""


class Answer:
    """The documents of one request's answer, whole or in chunks."""

    def __init__(self, model: str, prompt_tokens: int) -> None:
        """An answer of which nothing was said yet.

        Args:
            model: as served.
            prompt_tokens: of the request.
        """
        self._head = {"id": f"chatcmpl-{uuid.uuid4().hex}", "created": int(time.time()), "model": model}
        self._prompt_tokens = prompt_tokens

    def whole(self, done: Done, token_text: TokenText, *, token_ids: bool) -> dict[str, Any]:
        """The body of an answer that isn't streamed."""
        message = {
            "role": "assistant",
            "content": done.text.content or None,
            "reasoning": done.text.reasoning or None,
        }
        choice: dict[str, Any] = {
            "index": 0,
            "message": message,
            "logprobs": None if done.logprobs is None else logprobs(done.logprobs, token_text),
            "finish_reason": done.finish_reason,
            "stop_reason": done.stopped_by,
        }
        if token_ids:
            choice["token_ids"] = done.token_ids
        return {
            **self._head,
            "object": "chat.completion",
            "choices": [choice],
            "usage": self._usage(len(done.token_ids)),
            "metrics": metrics(done),
        }

    def chunk(self, step: Step, *, with_usage: bool) -> dict[str, Any]:
        """The event of one step."""
        delta: dict[str, Any] = {}
        if step.text.reasoning:
            delta["reasoning"] = step.text.reasoning
        if step.text.content:
            delta["content"] = step.text.content
        return self._event([_delta(delta, None)], step.tokens if with_usage else None)

    def begin(self, *, with_usage: bool) -> dict[str, Any]:
        """The event before any token, which says whose turn it is."""
        return self._event([_delta({"role": "assistant", "content": ""}, None)], 0 if with_usage else None)

    def last(self, done: Done, *, with_usage: bool) -> dict[str, Any]:
        """The event that says how it ended, with what had been held back."""
        delta = {name: text for name, text in done.rest._asdict().items() if text}
        return self._event([_delta(delta, done.finish_reason)], len(done.token_ids) if with_usage else None)

    def account(self, done: Done) -> dict[str, Any]:
        """The event behind the last one: usage, and the engine's own account."""
        return self._event([], len(done.token_ids)) | {"metrics": metrics(done)}

    def _event(self, choices: list[dict[str, Any]], tokens: int | None) -> dict[str, Any]:
        usage = {} if tokens is None else {"usage": self._usage(tokens)}
        return {**self._head, "object": "chat.completion.chunk", "choices": choices, **usage}

    def _usage(self, tokens: int) -> dict[str, Any]:
        """Nothing of a prompt is ever cached: each request computes all of it."""
        return {
            "prompt_tokens": self._prompt_tokens,
            "completion_tokens": tokens,
            "total_tokens": self._prompt_tokens + tokens,
            "prompt_tokens_details": {"cached_tokens": 0},
        }


def metrics(done: Done) -> dict[str, Any]:
    """The engine's own account of a request."""
    drafts = {} if done.drafts is None else {"speculative_decoding": done.drafts.as_metrics()}
    return done.clock.as_metrics(len(done.token_ids)) | drafts


def logprobs(tokens: Sequence[Logprob], token_text: TokenText) -> dict[str, Any]:
    """Probabilities of the written tokens."""
    content = [
        {
            "token": token_text(each.token_id),
            "logprob": each.logprob,
            "top_logprobs": [{"token": token_text(token), "logprob": value} for token, value in each.best],
        }
        for each in tokens
    ]
    return {"content": content}


def _delta(delta: dict[str, Any], finish_reason: str | None) -> dict[str, Any]:
    return {"index": 0, "delta": delta, "finish_reason": finish_reason}
