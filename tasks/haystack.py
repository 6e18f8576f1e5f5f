"""A long text with a needle in it: real prose, cut to a length by the tokenizer of the model that is served."""

from __future__ import annotations

import random
import re
from collections.abc import Sequence
from itertools import islice
from typing import NamedTuple

from configs.errors import SpecsweepError
from tasks.prompts import TOKENS_PER_WORD, CountTokens, Cut, cut, prompt_seed, words_of

CITIES = (
    "Lisbon|Oslo|Quito|Nairobi|Kyoto|Tallinn|Valencia|Montreal|Cardiff|Lima|Hanoi|Zagreb|Perth|Geneva|Tunis|Santiago|"
    "Krakow|Boston|Dakar|Athens|Riga|Havana|Bergen|Seville"
).split("|")

_THOUGHT = re.compile(r"<think>.*?(?:</think>|$)", re.DOTALL)
_GROUPED = r"\d{1,3}(?:[,.' _\u00a0\u202f]\d{3})+(?!\d)"
_NUMBER = re.compile(rf"{_GROUPED}|\d+")


class Needle(NamedTuple):
    """A city and its number of seven digits."""

    city: str
    number: str

    @property
    def sentence(self) -> str:
        """What is hidden."""
        return f"The secret number of {self.city} is {self.number}."

    @property
    def question(self) -> str:
        """What is asked behind the text."""
        return (
            f"What is the secret number of {self.city} that is mentioned in the text above? "
            "End your answer with that number alone."
        )


def needle_of(*place: int) -> Needle:
    """The needle of one place (length, depth, seed): no two places share a number, except by chance."""
    draw = random.Random(prompt_seed("needle", *place))
    return Needle(draw.choice(CITIES), str(draw.randrange(1_000_000, 10_000_000)))


def last_number(body: str) -> str | None:
    """Extractor `exact`: digits of the last number in the body, thoughts removed; `4,829,173` is one number."""
    found = _NUMBER.findall(_THOUGHT.sub("", body))
    return re.sub(r"\D", "", found[-1]) if found else None


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

    The chat template and the question count; at a depth of 100 % all but the question stands before the needle.

    Raises:
        NoRoom: there is no room for any text.
    """
    template_tokens = await count("")
    around = await count(_around(needle, "", ""))
    if around > context_tokens:
        problem = f"context_tokens {context_tokens} is too short for the needle and its question ({around} tokens)"
        raise NoRoom(f"{problem}; accepted: more than {around}")
    supply = list(
        islice(words_of(paragraphs, prompt_seed("haystack", seed)), context_tokens)
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
    return "\n\n".join(part for part in (before, needle.sentence, after, needle.question) if part)
