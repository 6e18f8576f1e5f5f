"""Guards over prompts: was what was sent as long as the condition says?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tasks.guards.finding import Finding
from warehouse.verdicts import Reason

LENGTH_SHARE = 0.01
"""How far from the asked length a prompt may be, or a token: a speed at "8k" is one at 8 thousand tokens, not at ten;
a tokenizer that can't part a word can't hit every small length."""


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

    Args:
        requests: rows with `prompt_tokens` and `counted_prompt_tokens`, which is null where nobody could count.
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
