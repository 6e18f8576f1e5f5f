"""Guards over token counts: did the work that was timed really happen, once, and all of it?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from configs.cell import Serving, Technique
from tasks.guards.finding import Finding
from tasks.meters import NAMES, Counters
from warehouse.ledger.verdicts import Reason

SEEN_SHARE = 1 / 3
"""Of its first time to the first token, what a prompt that is asked again takes at the least where nothing is cached. A
healthy engine takes as long again; a cached prompt of some thousand tokens a tenth."""

FEWEST_SEEN = 8
"""Prompts that must have been asked twice: fewer may all have met a compiler, or a busy machine, the first time."""


def short_output(asked_tokens: int, completion_tokens: Sequence[int]) -> Finding | None:
    """A fixed-length request must return exactly as many tokens as it asked for."""
    off = [tokens for tokens in completion_tokens if tokens != asked_tokens]
    if not off:
        return None
    sentence = f"{len(off)} of {len(completion_tokens)} outputs have not {asked_tokens} tokens (e.g. {off[0]})"
    return Finding(Reason.SHORT_OUTPUT, "rejected", sentence)


def failed_requests(windows: Sequence[Mapping[str, Any]]) -> Finding | None:
    """Every request of a window must be answered, whole: one that failed left its slot to others."""
    failed = sum(row.get("failed") or 0 for row in windows)
    if not failed:
        return None
    first = next(row["first_failure"] for row in windows if row.get("failed"))
    asked = sum(row["requests"] for row in windows)
    return Finding(Reason.REQUEST_FAILED, "rejected", f"{failed} of {asked} requests failed: {first}")


def token_mismatch(client_tokens: int, counted: Counters) -> Finding | None:
    """Over the same requests, tokens by usage must equal tokens by the engine's counter."""
    if counted.generation_tokens is None:
        return Finding(Reason.NO_ENGINE_COUNTERS, "suspect", "the engine shows no vllm:generation_tokens_total")
    if counted.generation_tokens == client_tokens:
        return None
    sentence = f"usage says {client_tokens} tokens, the engine counted {counted.generation_tokens:.0f}"
    return Finding(Reason.TOKEN_MISMATCH, "rejected", sentence)


def ids_mismatch(requests: Sequence[Mapping[str, Any]]) -> Finding | None:
    """An answer that was asked for its token ids has as many as its usage says."""
    asked = [row for row in requests if row.get("token_id_count") is not None]
    told = [(row["token_id_count"], row["completion_tokens"]) for row in asked]
    off = [(ids, tokens) for ids, tokens in told if ids != tokens]
    if not off:
        return None
    example = f"{off[0][0]} ids where usage says {off[0][1]} tokens"
    sentence = f"{len(off)} of {len(told)} answers have another number of token ids than of tokens (e.g. {example})"
    return Finding(Reason.TOKEN_MISMATCH, "rejected", sentence)


def prefix_cache_hit(counted: Counters, serving: Serving) -> Finding | None:
    """With prompts from the cache, a speed is not that of this cell. That its cache is on is no excuse, but a cause."""
    if not counted.prefix_hits:
        return None
    cause = ": serving.prefix_cache is true, speeds need false" if serving.prefix_cache else ""
    sentence = f"{counted.prefix_hits:.0f} prompt tokens came from the prefix cache{cause}"
    return Finding(Reason.PREFIX_CACHE_HIT, "rejected", sentence)


def secretly_cached(seen: Sequence[tuple[float, float]]) -> Finding | None:
    """A prompt that is asked again must not come faster: counters of the cache may say nothing, the clock does.

    Whatever keeps an engine waiting only adds to its times, so the shortest of each are compared.

    `seen`: of each prompt, ms to the first token when it was first asked, and when it was asked again at once.
    """
    if len(seen) < FEWEST_SEEN:
        return None
    first_ms, again_ms = (min(times) for times in zip(*seen, strict=True))
    if again_ms >= SEEN_SHARE * first_ms:
        return None
    sentence = (
        f"{len(seen)} new prompts took {first_ms:.0f} ms to the first token, and {again_ms:.0f} ms when each was asked "
        "again (the shortest times): the engine keeps prompts, whatever it counts"
    )
    return Finding(Reason.PREFIX_CACHE_HIT, "suspect", sentence)


def engine_preemption(counted: Counters) -> Finding | None:
    """Preempted requests are computed twice: the figure is true, but not this cell's speed."""
    if not counted.preemptions:
        return None
    return Finding(Reason.ENGINE_PREEMPTION, "suspect", f"the engine preempted {counted.preemptions:.0f} requests")


def counters_vanished(technique: Technique, counted: Counters) -> Finding | None:
    """Counters that a guard needs must be there; an engine without any is a matter of `token_mismatch`.

    vLLM 0.32.0 shows them from its start, at 0 (`v1/metrics/loggers.py`, `v1/spec_decode/metrics.py`). Those of prefix
    cache and preemptions are always there, also with the cache off; those of drafts wherever it was told to draft.
    """
    if counted.generation_tokens is None:
        return None
    needed = ["prefix_hits", "preemptions"]
    if technique.drafts:
        needed += ["drafts", "draft_tokens", "accepted_tokens"]
    if technique.denoises:
        needed += ["denoising_steps"]
    absent = [NAMES[field][0] for field in needed if getattr(counted, field) is None]
    if not absent:
        return None
    return Finding(Reason.COUNTERS_VANISHED, "suspect", f"the engine shows no {', '.join(absent)}: absent is not zero")


LENGTH_SHARE = 0.01
"""How far from the asked length a prompt may be, at least one token. A speed at "8k" is one at 8 thousand tokens, not
at ten; a tokenizer that can't split a word can't hit every small length."""


def prompt_length(asked: int, sent: Sequence[int]) -> Finding | None:
    """Every prompt of a condition must have as many tokens, by the engine's usage, as the condition says."""
    off = [tokens for tokens in sent if _is_off(asked, tokens)]
    if not off:
        return None
    furthest = max(off, key=lambda tokens: abs(tokens - asked))
    sentence = f"{len(off)} of {len(sent)} prompts have not {asked} tokens within {LENGTH_SHARE:.0%} (e.g. {furthest})"
    return Finding(Reason.PROMPT_LENGTH, "suspect", sentence)


def cut_prompts(requests: Sequence[Mapping[str, Any]]) -> Finding | None:
    """The engine must have read as many tokens, by its usage, as it counted in the prompt before it was sent.

    `counted_prompt_tokens` is null where nobody could count.
    """
    told = [row for row in requests if row.get("counted_prompt_tokens") is not None]
    off = [row for row in told if _is_off(row["counted_prompt_tokens"], row["prompt_tokens"])]
    if not off:
        return None
    row = max(off, key=lambda each: abs(int(each["prompt_tokens"]) - int(each["counted_prompt_tokens"])))
    example = f"{row['prompt_tokens']} tokens read of {row['counted_prompt_tokens']}"
    sentence = f"{len(off)} of {len(told)} prompts were read at another length than they have (e.g. {example})"
    return Finding(Reason.PROMPT_LENGTH, "suspect", sentence)


def _is_off(wanted: int, tokens: int) -> bool:
    return abs(tokens - wanted) > max(1, LENGTH_SHARE * wanted)
