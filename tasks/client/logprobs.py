"""How sure the model was of its tokens, as the logprobs of an answer say."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tasks.client.failures import RequestFailed


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
