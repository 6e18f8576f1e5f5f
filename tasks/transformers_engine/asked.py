"""What a chat request asks for, read once at the door; what would be answered with something else is refused."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

MOST_TOP_LOGPROBS = 20  # as many candidates as OpenAI's interface knows

REFUSED = {
    "n": 1,
    "presence_penalty": 0,
    "frequency_penalty": 0,
    "repetition_penalty": 1,
    "min_p": 0,
    "min_tokens": 0,
    "logit_bias": {},
    "tools": [],
    "response_format": {"type": "text"},
    "echo": False,
    "continue_final_message": False,
}
"""Fields that this server doesn't follow, with the value at which they ask for nothing."""


class BadRequest(Exception):
    """A request that can't be answered as it is asked; the text names the field and what would be accepted."""


class Asked(NamedTuple):
    """A chat request. `max_tokens` None: as many as the context has room for; `temperature` 0: greedily."""

    messages: list[dict[str, Any]]
    max_tokens: int | None
    temperature: float
    top_p: float
    top_k: int
    seed: int | None
    ignore_eos: bool
    stop: tuple[str, ...]
    top_logprobs: int | None  # candidates beside each token's own probability; None: no probabilities
    token_ids: bool
    template_kwargs: dict[str, Any]
    streams: bool
    include_usage: bool
    running_usage: bool
    add_generation_prompt: bool


def asked(body: Mapping[str, Any]) -> Asked:
    """Read a request to chat or `/tokenize`. Raises BadRequest: a wrong type, or what this server doesn't do."""
    for name, nothing in REFUSED.items():
        if body.get(name) not in (None, nothing):
            raise BadRequest(f"{name}: {body[name]!r:.60} is not supported by the transformers engine; leave it out")
    messages = body.get("messages")
    if not isinstance(messages, list) or not messages or not all(isinstance(each, dict) for each in messages):
        raise BadRequest("messages: missing or empty; accepted: a list of chat messages")
    stop = body.get("stop") or []
    options = body.get("stream_options") or {}
    wants_logprobs = bool(body.get("logprobs"))
    top_k = _number(body, "top_k", int, 0)
    return Asked(
        messages=messages,
        max_tokens=_number(body, "max_completion_tokens", int, _number(body, "max_tokens", int, None, 1), 1),
        temperature=_number(body, "temperature", float, 1.0, 0),
        top_p=_number(body, "top_p", float, 1.0, 0),
        top_k=max(top_k, 0),  # vLLM's -1 is all of them, too
        seed=_number(body, "seed", int, None),
        ignore_eos=bool(body.get("ignore_eos")),
        stop=(stop,) if isinstance(stop, str) else tuple(each for each in stop if each),
        top_logprobs=min(_number(body, "top_logprobs", int, 0, 0), MOST_TOP_LOGPROBS) if wants_logprobs else None,
        token_ids=bool(body.get("return_token_ids")),
        template_kwargs=dict(body.get("chat_template_kwargs") or {}),
        streams=bool(body.get("stream")),
        include_usage=bool(options.get("include_usage")),
        running_usage=bool(options.get("continuous_usage_stats")),
        add_generation_prompt=bool(body.get("add_generation_prompt", True)),
    )


def _number(body: Mapping[str, Any], name: str, kind: type, default: Any, least: float | None = None) -> Any:
    value = body.get(name)
    if value is None:
        return default
    if isinstance(value, bool) or not isinstance(value, int | float) or (kind is int and value != int(value)):
        raise BadRequest(f"{name}: {value!r:.60} given; accepted: a number")
    if least is not None and value < least:
        raise BadRequest(f"{name}: {value} given; accepted: {least:g} or more")
    return kind(value)
