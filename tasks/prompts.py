"""Prompts that never repeat, so that no cache can help; the same for every cell, so that cells can be compared.

A prompt is as long as its condition says, by the tokenizer and the chat template of the model that is served.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Awaitable, Callable, Sequence
from typing import NamedTuple

from pydantic import JsonValue

from tasks.family import words
from tasks.prose.essay import cut_essay, essay_of


def prompt_seed(*names: str | int) -> int:
    """A 48-bit seed from names, the same on every machine."""
    return int.from_bytes(hashlib.sha256("/".join(map(str, names)).encode()).digest()[:6], "big")


class Prompt(NamedTuple):
    """A user message, and the chat-template arguments that it needs on top of the model's own."""

    text: str
    template_kwargs: dict[str, JsonValue] = {}  # noqa: RUF012 - never written to


class PromptSource(NamedTuple):
    """What prompts are made of on a node: the run's prose, and the engine that counts tokens."""

    prose: Callable[[], Awaitable[Sequence[str]]]
    count_tokens: Callable[[Prompt], Awaitable[int]]


async def build_prompt(kind: str, seed: int, context_tokens: int, output_tokens: int, source: PromptSource) -> Prompt:
    """The prompt of one request.

    Args:
        kind: `prose`, or a name in `MADE_OF_WORDS`.
        seed: tells this prompt from every other.
        context_tokens: how long the prompt should be, chat template included. Prose stays at most 0.1 % below, and is
            longer only where its request alone is.
        output_tokens: how long an answer it must ask for.
        source: where prose comes from.
    """
    if kind != PROSE:
        return MADE_OF_WORDS[kind](seed, context_tokens, output_tokens)
    essay = essay_of(await source.prose(), seed, context_tokens, output_tokens)
    return Prompt(await cut_essay(essay, context_tokens, lambda text: source.count_tokens(Prompt(text))))


def prompt_again(
    kind: str, seed: int, context_tokens: int, output_tokens: int, paragraphs: Sequence[str], characters: int
) -> Prompt:
    """A prompt that was sent, by its length in characters: no engine is there to count its tokens."""
    if kind != PROSE:
        return MADE_OF_WORDS[kind](seed, context_tokens, output_tokens)
    return Prompt(essay_of(paragraphs, seed, context_tokens, output_tokens).again(characters))


def _listing(seed: int, context_tokens: int, output_tokens: int) -> Prompt:
    """A list for the demo family to annotate; it was taught to do that without thinking first."""
    text = words.listing_prompt(seed, context_tokens, output_tokens)
    return Prompt(text, {"enable_thinking": words.LISTING_THINKING})


def _lookup(seed: int, context_tokens: int, output_tokens: int) -> Prompt:
    """A question of 28 tokens for the demo family's diffusion member, which was taught nothing else.

    There are only 1536 of them, so a few repeat: the guard over prefix-cache hits would show if it mattered.
    """
    return Prompt(words.draw_question("lookup", random.Random(f"lookup {seed}")).prompt)


PROSE = "prose"
"""Real prose, cut to its length by counting; see `tasks.prose`."""

MADE_OF_WORDS: dict[str, Callable[[int, int, int], Prompt]] = {"listing": _listing, "lookup": _lookup}
"""Kinds of the demo family, of known words: no tokens to count. With `prose`, `PROMPT_KINDS` of `configs/step.py`."""
