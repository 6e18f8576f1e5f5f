"""A user message of real prose: a heading that no other prompt has, the text, and a request to write about it."""

from __future__ import annotations

import random
from collections.abc import Sequence
from functools import cache
from itertools import islice
from typing import NamedTuple

from tasks.prose.cut import TOKENS_PER_CHARACTER, TOKENS_PER_WORD, CountTokens, Cut, cut
from tasks.prose.paragraphs import words

HEADING_LETTERS = 5
"""Words of the heading have at least as many. Three of 1700 such words: no two of a run's prompts begin alike, and
no block of them can come from a prefix cache."""

CUT_HERE = " [...]"
"""Says that the text is cut. It also keeps its last mark from melting with the line break into one token, as Qwen's
`,\\n\\n` does: then one letter more would be two tokens more, and a fifth of the short prompts would miss theirs."""


class Essay(NamedTuple):
    """A message around as much of `supply` as is wanted. Its length in characters is all that is open."""

    heading: str
    supply: str
    request: str

    def text(self, characters: int) -> str:
        """The message with the first so many characters of the supply."""
        return f"{self.heading}\n\n{self.supply[:characters].rstrip()}{CUT_HERE}\n\n{self.request}"

    def again(self, text_characters: int) -> str:
        """The message of this length in characters: a prompt that was sent, without the engine that counted it."""
        return self.text(text_characters - len(self.text(0)))


def essay_of(paragraphs: Sequence[str], seed: int, context_tokens: int, output_tokens: int) -> Essay:
    """The message of a seed.

    Args:
        paragraphs: the run's prose.
        seed: draws the heading and the order of the paragraphs.
        context_tokens: the most that may be wanted of it: a word has a token at least.
        output_tokens: how long an answer is asked for.
    """
    paragraphs = _without_digits(tuple(paragraphs))
    first, second, third = random.Random(f"heading {seed}").sample(_heading_words(paragraphs), 3)
    return Essay(
        f"On {first}, {second} and {third}",
        " ".join(word.strip() for word in islice(words(paragraphs, seed), context_tokens)),
        f"Write an essay of at least {output_tokens} words that explains the text above in detail.",
    )


async def cut_essay(essay: Essay, context_tokens: int, count: CountTokens) -> str:
    """The message whose whole prompt has `context_tokens`, to `SLACK` below: cut between words, else within one.

    Where its shortest form is too long already, that one.
    """

    async def tokens_at(place: int) -> int:
        return await count(essay.text(place))

    ends = [0, *(place for place, letter in enumerate(essay.supply) if letter == " "), len(essay.supply)]
    nothing = Cut(0, await tokens_at(0))
    whole = await cut(nothing, len(ends) - 1, context_tokens, lambda n: tokens_at(ends[n]), TOKENS_PER_WORD)
    here, beyond = ends[whole.units : whole.units + 2] if whole.units < len(ends) - 1 else (ends[-1], ends[-1])
    part = await cut(
        Cut(0, whole.tokens), beyond - here - 1, context_tokens, lambda n: tokens_at(here + n), TOKENS_PER_CHARACTER
    )
    return essay.text(here + part.units)


@cache
def _without_digits(paragraphs: tuple[str, ...]) -> tuple[str, ...]:
    """What essays are made of: a number adds two tokens at once where a short prompt may lack one.

    31 thousand words of 41 in Python 3.11: from about 40 thousand tokens on, paragraphs come again.
    """
    return tuple(paragraph for paragraph in paragraphs if not any(map(str.isdigit, paragraph)))


@cache
def _heading_words(paragraphs: tuple[str, ...]) -> list[str]:
    found = {word for paragraph in paragraphs for word in paragraph.split() if word.isalpha() and word.islower()}
    return sorted(word for word in found if len(word) >= HEADING_LETTERS)
