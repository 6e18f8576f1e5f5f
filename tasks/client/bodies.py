"""What is asked of the engine: the body of a chat request."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from configs.cell import Model, Technique
from tasks.prompts import Prompt

STREAM = {
    "stream": True,
    "stream_options": {"include_usage": True, "continuous_usage_stats": True},
    "return_token_ids": True,
}
"""What a streamed request asks for: running usage in each chunk, and token ids.

Of a step whose text its reasoning parser keeps, vLLM 0.32.0 sends a chunk only to who asked for ids or probabilities
(`entrypoints/openai/chat_completion/serving.py`). Gemma 4's thinking begins with three such tokens: the first that was
seen came with AR's fourth step and a draft's second. The prompt's ids come with the chunk of the role, just before the
first token: 54 kB and 0.3 ms of the server at 8k, 216 kB and 1 ms at 32k (2026-11-24, one core), where prefills take
hundreds of times as long, in every arm.
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


def streamed(body: Mapping[str, Any]) -> dict[str, Any]:
    """The same body for an answer that comes as it is made."""
    return {**body, **STREAM}
