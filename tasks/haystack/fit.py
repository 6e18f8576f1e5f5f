"""Cuts a text to a length in tokens, though only the engine can count them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from itertools import islice
from typing import NamedTuple

from configs.errors import SpecsweepError
from tasks.haystack.filler import words
from tasks.haystack.needle import Needle
from tasks.prompts import TOKENS_PER_WORD, prompt_seed

SLACK = 0.001
"""How much shorter than asked a text may stay; 0.5 % would do, but a further count costs little beside the prompt."""

MOST_COUNTS = 12
"""Counts per cut. Lengths grow evenly with words, so that three or four do; bisecting alone would take 17."""

CountTokens = Callable[[str], Awaitable[int]]
"""Tokens of the whole prompt with this user message: chat template included."""


class NoRoom(SpecsweepError):
    """A length that the question alone exceeds."""


class Haystack(NamedTuple):
    """A user message with its needle. `depth_tokens` are before the needle, out of `prompt_tokens` in all."""

    text: str
    prompt_tokens: int
    depth_tokens: int


async def haystack(needle: Needle, context_tokens: int, depth_percent: int, seed: int, count: CountTokens) -> Haystack:
    """A text whose whole prompt has `context_tokens` or a word less, the needle at `depth_percent` of them.

    Args:
        needle: what is hidden.
        context_tokens: length of the prompt, chat template and question included.
        depth_percent: how many of them stand before the needle; at 100 %, all but the question.
        seed: draws the order of the paragraphs.
        count: how the engine counts.

    Raises:
        NoRoom: there is no room for any text.
    """
    template_tokens = await count("")
    around = await count(_around(needle, "", ""))
    if around > context_tokens:
        problem = f"context_tokens {context_tokens} is too short for the needle and its question ({around} tokens)"
        raise NoRoom(f"{problem}; accepted: more than {around}")
    supply = list(islice(words(prompt_seed("haystack", seed)), context_tokens))  # a word has a token at least
    depth = min(round(context_tokens * depth_percent / 100), context_tokens - around)
    before = await _cut(supply, template_tokens + depth, lambda n: count(_text(supply[:n])))
    head, tail = _text(supply[: before.words]), supply[before.words :]
    whole = await _cut(tail, context_tokens, lambda n: count(_around(needle, head, _text(tail[:n]))))
    return Haystack(_around(needle, head, _text(tail[: whole.words])), whole.tokens, before.tokens - template_tokens)


class _Cut(NamedTuple):
    words: int
    tokens: int


async def _cut(supply: Sequence[str], most_tokens: int, tokens_of: Callable[[int], Awaitable[int]]) -> _Cut:
    """The most words with at most so many tokens, to `SLACK` or to a word."""
    low, high = _Cut(0, await tokens_of(0)), len(supply) + 1
    base, per_word = low.tokens, TOKENS_PER_WORD
    for _ in range(MOST_COUNTS):
        if high - low.words <= 1 or most_tokens - low.tokens <= SLACK * most_tokens:
            break
        guess = low.words + int((most_tokens - low.tokens) / per_word)
        tried = min(max(guess, low.words + 1), high - 1)
        tokens = await tokens_of(tried)
        per_word = max((tokens - base) / tried, 0.01)
        if tokens <= most_tokens:
            low = _Cut(tried, tokens)
        else:
            high = tried
    return low


def _text(some: Sequence[str]) -> str:
    return "".join(some).rstrip()


def _around(needle: Needle, before: str, after: str) -> str:
    """The user message: each part a paragraph of its own."""
    return "\n\n".join(part for part in (before, needle.sentence, after, needle.question) if part)
