"""Guards over prompts: was what was sent as long as the condition says?"""

from __future__ import annotations

from collections.abc import Sequence

from tasks.guards.finding import Finding
from warehouse.verdicts import Reason

LENGTH_SHARE = 0.01
"""How far from the asked length a prompt may be, or a token: a speed at "8k" is one at 8 thousand tokens, not at ten;
a tokenizer that can't part a word can't hit every small length."""


def prompt_length(asked: int, sent: Sequence[int]) -> Finding | None:
    """Every prompt of a condition must have as many tokens, by the engine's usage, as the condition says."""
    off = [tokens for tokens in sent if abs(tokens - asked) > max(1, LENGTH_SHARE * asked)]
    if not off:
        return None
    furthest = max(off, key=lambda tokens: abs(tokens - asked))
    sentence = f"{len(off)} of {len(sent)} prompts have not {asked} tokens within {LENGTH_SHARE:.0%} (e.g. {furthest})"
    return Finding(Reason.PROMPT_LENGTH, "suspect", sentence)
