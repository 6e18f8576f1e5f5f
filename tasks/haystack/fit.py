"""A text of a length in tokens around a needle."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from typing import NamedTuple

from configs.errors import SpecsweepError
from tasks.haystack.needle import Needle
from tasks.prompts import prompt_seed
from tasks.prose.cut import TOKENS_PER_WORD, CountTokens, Cut, cut
from tasks.prose.paragraphs import words


class NoRoom(SpecsweepError):
    """A length that the question alone exceeds."""


class Haystack(NamedTuple):
    """A user message with its needle. `depth_tokens` are before the needle, out of `prompt_tokens` in all."""

    text: str
    prompt_tokens: int
    depth_tokens: int


async def haystack(
    needle: Needle, context_tokens: int, depth_percent: int, seed: int, paragraphs: Sequence[str], count: CountTokens
) -> Haystack:
    """A text whose whole prompt has `context_tokens` or a word less, the needle at `depth_percent` of them.

    Args:
        needle: what is hidden.
        context_tokens: length of the prompt, chat template and question included.
        depth_percent: how many of them stand before the needle; at 100 %, all but the question.
        seed: draws the order of the paragraphs.
        paragraphs: the run's prose.
        count: how the engine counts.

    Raises:
        NoRoom: there is no room for any text.
    """
    template_tokens = await count("")
    around = await count(_around(needle, "", ""))
    if around > context_tokens:
        problem = f"context_tokens {context_tokens} is too short for the needle and its question ({around} tokens)"
        raise NoRoom(f"{problem}; accepted: more than {around}")
    supply = list(
        islice(words(paragraphs, prompt_seed("haystack", seed)), context_tokens)
    )  # a word has a token at least
    depth = min(round(context_tokens * depth_percent / 100), context_tokens - around)
    before = await cut(
        Cut(0, template_tokens),
        len(supply),
        template_tokens + depth,
        lambda n: count(_text(supply[:n])),
        TOKENS_PER_WORD,
    )
    head, tail = _text(supply[: before.units]), supply[before.units :]

    async def tokens_of(words_after: int) -> int:
        return await count(_around(needle, head, _text(tail[:words_after])))

    whole = await cut(Cut(0, await tokens_of(0)), len(tail), context_tokens, tokens_of, TOKENS_PER_WORD)
    return Haystack(_around(needle, head, _text(tail[: whole.units])), whole.tokens, before.tokens - template_tokens)


def _text(some: Sequence[str]) -> str:
    return "".join(some).rstrip()


def _around(needle: Needle, before: str, after: str) -> str:
    """The user message: each part a paragraph of its own."""
    return "\n\n".join(part for part in (before, needle.sentence, after, needle.question) if part)
