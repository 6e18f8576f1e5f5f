"""One exchange: the names of a request, its answer as a row of `exchanges`, and the row as an answer again."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from configs.errors import SpecsweepError
from tasks.evals.hashes import canonical, prompt_hash, request_hash
from warehouse.parts import Row


class AnswerUnusable(SpecsweepError):
    """The engine said 200 to a request and did not finish it; asking again may help."""


class Sent(NamedTuple):
    """A request as the engine gets it. `dropped` names the fields that the client sent besides."""

    body: Mapping[str, Any]
    document: bytes
    dropped: Sequence[str]
    sample: int
    request_hash: str
    prompt_hash: str


def sent(body: Mapping[str, Any], dropped: Sequence[str], sample: int) -> Sent:
    """The request with its names.

    Raises:
        ValueError: the text is not Unicode (a lone surrogate).
    """
    document = canonical(body).encode()
    return Sent(body, document, dropped, sample, request_hash(body, sample), prompt_hash(body["messages"]))


def row_of(suite: str, asked: Sent, occurrence: int, answer: object, latency_s: float) -> Row:
    """The engine's answer as a row of `exchanges`, without the columns that say who measured it.

    Raises:
        AnswerUnusable: it has not one choice with a message, a finish_reason of stop or length, and token counts.
    """
    try:
        choice, usage = _only_choice(answer), answer["usage"]  # type: ignore[index]
        message, finish_reason = choice["message"], choice["finish_reason"]
        body, reasoning = message.get("content"), message.get("reasoning") or message.get("reasoning_content")
        tokens = int(usage["prompt_tokens"]), int(usage["completion_tokens"])
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise AnswerUnusable(f"the engine's answer is no chat completion ({error!r}): {answer!r:.200}") from error
    if finish_reason not in ("stop", "length"):
        raise AnswerUnusable(f"the engine ended the request with finish_reason {finish_reason!r}")
    if not isinstance(body, str | None):
        raise AnswerUnusable(f"the engine's content is no text: {body!r:.100}")
    stop_reason = choice.get("stop_reason")
    return {
        "suite": suite,
        "request_hash": asked.request_hash,
        "occurrence": occurrence,
        "prompt_hash": asked.prompt_hash,
        "sample": asked.sample,
        "messages": canonical(asked.body["messages"]),
        "parameters": canonical({name: value for name, value in asked.body.items() if name != "messages"}),
        "dropped": list(asked.dropped),
        "body": body,
        "reasoning": reasoning,
        "finish_reason": finish_reason,
        "stop_reason": None if stop_reason is None else str(stop_reason),
        "prompt_tokens": tokens[0],
        "completion_tokens": tokens[1],
        "latency_s": latency_s,
    }


def answer_of(row: Row) -> dict[str, Any]:
    """The answer as the engine would shape it. A fresh answer goes the same way: a replay can't look different."""
    message = {"role": "assistant", "content": row["body"], "reasoning": row["reasoning"]}
    choice = {
        "index": 0,
        "message": message,
        "logprobs": None,
        "finish_reason": row["finish_reason"],
        "stop_reason": row["stop_reason"],
    }
    prompt_tokens, completion_tokens = row["prompt_tokens"], row["completion_tokens"]
    return {
        "id": f"chatcmpl-{row['request_hash']}-{row['occurrence']}",
        "object": "chat.completion",
        "created": 0,
        "model": json.loads(row["parameters"])["model"],
        "choices": [choice],
        "usage": {
            "prompt_tokens": prompt_tokens,
            "completion_tokens": completion_tokens,
            "total_tokens": prompt_tokens + completion_tokens,
        },
    }


def is_blank(row: Row) -> bool:
    """Whether there is no body: null, empty or white space."""
    return not (row["body"] or "").strip()


def is_truncated(row: Row) -> bool:
    """Whether the length limit cut it off."""
    return bool(row["finish_reason"] == "length")


def _only_choice(answer: Any) -> Any:
    (choice,) = answer["choices"]
    return choice
