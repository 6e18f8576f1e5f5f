"""Cuts a text to a length in tokens, though only the engine can count them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import NamedTuple

TOKENS_PER_WORD = 1.3
"""English words to tokens of a large vocabulary: a first guess only, and the same one for every text. A guess that
learnt from earlier prompts would cut a prompt otherwise after a resume than before it."""

TOKENS_PER_CHARACTER = 0.25
"""The same for letters of an English word."""

SLACK = 0.001
"""How much shorter than asked a text may stay; 0.5 % would do, but a further count costs little beside the prompt."""

MOST_COUNTS = 12
"""Counts per cut. Lengths grow evenly with words, so that three or four do; bisecting alone would take 17."""

CountTokens = Callable[[str], Awaitable[int]]
"""Tokens of the whole prompt with this user message: chat template included."""


class Cut(NamedTuple):
    """How many units of a text, words or characters, and how many tokens the prompt has with them."""

    units: int
    tokens: int


async def cut(
    nothing: Cut, units: int, most_tokens: int, tokens_of: Callable[[int], Awaitable[int]], tokens_per_unit: float
) -> Cut:
    """The most units with at most so many tokens, to `SLACK` or to a unit; `nothing` where even that is too long.

    Args:
        nothing: the prompt with none of the units.
        units: how many there are.
        most_tokens: tokens of the whole prompt that must not be exceeded.
        tokens_of: counts the prompt with so many units.
        tokens_per_unit: the first guess.
    """
    low, high, per_unit = nothing, Cut(units + 1, 0), tokens_per_unit
    for _ in range(MOST_COUNTS):
        missing = most_tokens - low.tokens
        if high.units - low.units <= 1 or missing <= SLACK * most_tokens:
            break
        # a hair short of the aim: what is a little too long must be tried again, what is a little too short is done
        guess = low.units + int((missing - SLACK / 2 * most_tokens) / per_unit)
        tried = min(max(guess, low.units + 1), high.units - 1)
        found = Cut(tried, await tokens_of(tried))
        low, high = (found, high) if found.tokens <= most_tokens else (low, found)
        ends = (low, high) if high.tokens else (nothing, low)
        per_unit = max((ends[1].tokens - ends[0].tokens) / (ends[1].units - ends[0].units), 0.01)
    return low
