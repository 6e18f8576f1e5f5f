"""Guards over token counts: did the work that was timed really happen, once, and all of it?"""

from __future__ import annotations

from collections.abc import Sequence

from tasks.guards.finding import Finding
from tasks.meters import Counters
from warehouse.verdicts import Reason


def short_output(asked_tokens: int, completion_tokens: Sequence[int]) -> Finding | None:
    """A fixed-length request must return exactly as many tokens as it asked for."""
    off = [tokens for tokens in completion_tokens if tokens != asked_tokens]
    if not off:
        return None
    sentence = f"{len(off)} of {len(completion_tokens)} outputs have not {asked_tokens} tokens (e.g. {off[0]})"
    return Finding(Reason.SHORT_OUTPUT, "rejected", sentence)


def token_mismatch(client_tokens: int, counted: Counters) -> Finding | None:
    """Over the same requests, tokens by usage must equal tokens by the engine's counter."""
    if counted.generation_tokens is None:
        return Finding(Reason.NO_ENGINE_COUNTERS, "suspect", "the engine shows no vllm:generation_tokens_total")
    if counted.generation_tokens == client_tokens:
        return None
    sentence = f"usage says {client_tokens} tokens, the engine counted {counted.generation_tokens:.0f}"
    return Finding(Reason.TOKEN_MISMATCH, "rejected", sentence)


def prefix_cache_hit(counted: Counters) -> Finding | None:
    """With prompts from the cache, a speed is not that of this cell."""
    if not counted.prefix_hits:
        return None
    return Finding(
        Reason.PREFIX_CACHE_HIT, "rejected", f"{counted.prefix_hits:.0f} prompt tokens came from the prefix cache"
    )


def engine_preemption(counted: Counters) -> Finding | None:
    """Preempted requests are computed twice: the figure is true, but not this cell's speed."""
    if not counted.preemptions:
        return None
    return Finding(Reason.ENGINE_PREEMPTION, "suspect", f"the engine preempted {counted.preemptions:.0f} requests")
