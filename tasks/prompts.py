"""Prompts that never repeat, so that no cache can help; the same for every cell, so that cells can be compared."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Callable
from typing import NamedTuple

from configs.frozen import JsonScalar
from tasks.family import words

TOKENS_PER_WORD = 1.3
"""English words to tokens of a large vocabulary, for sizing prose; the true count comes back in usage."""

_SUBJECTS = "engineers|farmers|sailors|doctors|painters|teachers|pilots|bakers|miners|judges|gardeners|poets".split("|")
_VERBS = "measured|repaired|sold|compared|described|painted|collected|weighed|forgot|moved|counted|tested".split("|")
_OBJECTS = "bridges|letters|engines|maps|clocks|rivers|stones|lamps|contracts|violins|seeds|ledgers|boats".split("|")
_PLACES = "harbour|valley|archive|station|market|tower|library|workshop|orchard|island|court|hospital".split("|")


def prompt_seed(*names: str | int) -> int:
    """A 48-bit seed from names, the same on every machine."""
    return int.from_bytes(hashlib.sha256("/".join(map(str, names)).encode()).digest()[:6], "big")


class Prompt(NamedTuple):
    """A user message, and the chat-template arguments that it needs on top of the model's own."""

    text: str
    template_kwargs: dict[str, JsonScalar] = {}  # noqa: RUF012 - never written to


def build_prompt(kind: str, seed: int, context_tokens: int, output_tokens: int) -> Prompt:
    """The prompt of one request.

    Args:
        kind: a name in `PROMPT_KINDS`.
        seed: tells this prompt from every other.
        context_tokens: about how long the prompt should be.
        output_tokens: how long an answer it must ask for.
    """
    return PROMPT_KINDS[kind](seed, context_tokens, output_tokens)


def _listing(seed: int, context_tokens: int, output_tokens: int) -> Prompt:
    """A list for the demo family to annotate; it was taught to do that without thinking first."""
    text = words.listing_prompt(seed, context_tokens, output_tokens)
    return Prompt(text, {"enable_thinking": words.LISTING_THINKING})


def _lookup(seed: int, context_tokens: int, output_tokens: int) -> Prompt:
    """A question of 28 tokens for the demo family's diffusion member, which was taught nothing else.

    There are only 1536 of them, so a few repeat: the guard over prefix-cache hits would show if it mattered.
    """
    return Prompt(words.draw_question("lookup", random.Random(f"lookup {seed}")).prompt)


def _prose(seed: int, context_tokens: int, output_tokens: int) -> Prompt:
    """Seeded sentences to the wanted length, then a request for a long essay about them."""
    rng = random.Random(seed)
    task = (
        f"Write an essay of at least {output_tokens} words that explains, one by one, what happened in this report, "
        f"why it mattered and what should be done next. Report number {seed}:"
    )
    said = len(task.split())
    sentences = []
    while said * TOKENS_PER_WORD < context_tokens:
        sentence = (
            f"In {rng.randrange(1700, 2030)} {rng.randrange(2, 999)} {rng.choice(_SUBJECTS)} {rng.choice(_VERBS)} "
            f"the {rng.choice(_OBJECTS)} of the {rng.choice(_PLACES)} near the {rng.choice(_PLACES)}."
        )
        sentences.append(sentence)
        said += len(sentence.split())
    return Prompt(" ".join([task, *sentences]))


PROMPT_KINDS: dict[str, Callable[[int, int, int], Prompt]] = {
    "listing": _listing,
    "lookup": _lookup,
    "prose": _prose,
}
"""What a suite's `prompts:` may name."""
