"""Prompts that never repeat, so that no cache can help; the same for every cell, so that cells can be compared.

A prompt is as long as its condition says, by the tokenizer and the chat template of the model that is served.
"""

from __future__ import annotations

import hashlib
import json
import random
import re
from collections.abc import Awaitable, Callable, Iterator, Sequence
from functools import cache
from itertools import islice
from typing import NamedTuple

from pydantic import JsonValue

from configs.errors import SpecsweepError
from tasks.family import words

TOKENS_PER_WORD = 1.3
"""English words to tokens of a large vocabulary: a first guess only, and the same one for every text. A guess that
learnt from earlier prompts would cut a prompt otherwise after a resume than before it."""

TOKENS_PER_CHARACTER = 0.25  # the same for letters of an English word
SLACK = 0.001  # how much shorter than asked a text may stay; 0.5 % would do, but another count is cheap
MOST_COUNTS = 12  # counts per cut: lengths grow evenly with words, so three or four do; bisecting alone would take 17
CountTokens = Callable[[str], Awaitable[int]]  # tokens of the whole prompt with this message, template included


class Cut(NamedTuple):
    """How many units of a text, words or characters, and how many tokens the prompt has with them."""

    units: int
    tokens: int


async def cut(
    nothing: Cut, units: int, most_tokens: int, tokens_of: Callable[[int], Awaitable[int]], tokens_per_unit: float
) -> Cut:
    """The most of so many units with at most so many tokens of the whole prompt, to `SLACK` or to a unit.

    `nothing`: the prompt with none of them, which is returned where it is too long already. `tokens_of` counts the
    prompt with so many units; `tokens_per_unit`: the first guess.
    """
    low, high, per_unit = nothing, Cut(units + 1, 0), tokens_per_unit
    for _ in range(MOST_COUNTS):
        missing = most_tokens - low.tokens
        if high.units - low.units <= 1 or missing <= SLACK * most_tokens:
            break
        # slightly short of the aim: what is a little too long must be tried again, what is a little too short is done
        guess = low.units + int((missing - SLACK / 2 * most_tokens) / per_unit)
        tried = min(max(guess, low.units + 1), high.units - 1)
        found = Cut(tried, await tokens_of(tried))
        low, high = (found, high) if found.tokens <= most_tokens else (low, found)
        ends = (low, high) if high.tokens else (nothing, low)
        per_unit = max((ends[1].tokens - ends[0].tokens) / (ends[1].units - ends[0].units), 0.01)
    return low


PROSE_KEPT_AS = "prose.json"  # the run's copy among its prompts
LEAST_WORDS = 12  # a paragraph below this is a heading or a line of code
LEAST_PROSE = 0.9  # share of letters and ordinary punctuation that makes a paragraph prose; code and tables have less

_PARAGRAPH = re.compile(r"\n\s*\n")
_LONG_NUMBER = re.compile(r"\d{5}")


class ProseUnreadable(SpecsweepError):
    """The run's copy of the prose is not what a planner writes."""


@cache
def paragraphs_here() -> tuple[str, ...]:
    """All paragraphs of English prose in the language reference inside Python, none with a number like a needle's.

    A thousand of 41 thousand words in Python 3.11. The text differs between versions, so a run keeps a copy of its own.
    """
    from pydoc_data.topics import topics  # half a megabyte, which not every step needs

    blocks = (" ".join(block.split()) for name in sorted(topics) for block in _PARAGRAPH.split(topics[name]))
    return tuple(dict.fromkeys(block for block in blocks if _is_prose(block)))


def prose_to_json(paragraphs: Sequence[str]) -> bytes:
    """Paragraphs as a run keeps them: a JSON list of strings."""
    return json.dumps(list(paragraphs), indent=0).encode()


def prose_from_json(data: bytes) -> tuple[str, ...]:
    """Paragraphs of a run's copy. Raises ProseUnreadable: it is no list of strings, or an empty one."""
    try:
        said = json.loads(data)
    except ValueError as error:
        raise ProseUnreadable(f"the run's prompts/{PROSE_KEPT_AS} is no JSON ({error}): start a new run") from error
    if not isinstance(said, list) or not said or not all(isinstance(one, str) and one.strip() for one in said):
        raise ProseUnreadable(f"the run's prompts/{PROSE_KEPT_AS} is no list of paragraphs: start a new run")
    return tuple(said)


def words_of(paragraphs: Sequence[str], seed: int) -> Iterator[str]:
    """Words of the paragraphs in an order drawn with the seed, without end; each with the white space behind it.

    No paragraph comes twice before all have come, which is after about 55 thousand tokens.
    """
    draw = random.Random(seed)
    while True:
        for paragraph in draw.sample(paragraphs, len(paragraphs)):
            *most, last = paragraph.split()
            yield from (f"{word} " for word in most)
            yield f"{last}\n\n"


def _is_prose(block: str) -> bool:
    plain = sum(letter.isalpha() or letter in " ,.;:'()-" for letter in block)
    return len(block.split()) >= LEAST_WORDS and plain >= LEAST_PROSE * len(block) and not _LONG_NUMBER.search(block)


HEADING_LETTERS = 5
"""Words of the heading have at least as many. Three of 1700 such words: no two of a run's prompts begin alike, and
no block of them can come from a prefix cache."""

CUT_HERE = " [...]"
"""Says that the text is cut. It also keeps its last mark from melting with the line break into one token, as Qwen's
`,\\n\\n` does. Otherwise one letter could add two tokens, and a fifth of the short prompts would miss their length."""


class Essay(NamedTuple):
    """A message around as much of `supply` as is wanted. Its length in characters is all that is open."""

    heading: str
    supply: str
    request: str

    def text(self, characters: int) -> str:
        """The message with the first so many characters of the supply."""
        return f"{self.heading}\n\n{self.supply[:characters].rstrip()}{CUT_HERE}\n\n{self.request}"


def essay_of(paragraphs: Sequence[str], seed: int, context_tokens: int, output_tokens: int) -> Essay:
    """The message of a seed; at most `context_tokens` words are wanted of it, since a word has a token at least."""
    paragraphs = _without_digits(tuple(paragraphs))
    first, second, third = random.Random(f"heading {seed}").sample(_heading_words(paragraphs), 3)
    return Essay(
        f"On {first}, {second} and {third}",
        " ".join(word.strip() for word in islice(words_of(paragraphs, seed), context_tokens)),
        f"Write an essay of at least {output_tokens} words that explains the text above in detail.",
    )


async def cut_essay(essay: Essay, context_tokens: int, count: CountTokens) -> str:
    """The message whose prompt has `context_tokens`, to `SLACK` below, cut between words or in one; or its shortest."""

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


def prompt_seed(*names: str | int) -> int:
    """A 48-bit seed from names, the same on every machine."""
    return int.from_bytes(hashlib.sha256("/".join(map(str, names)).encode()).digest()[:6], "big")


class Prompt(NamedTuple):
    """A user message, and the chat-template arguments that it needs on top of the model's own."""

    text: str
    template_kwargs: dict[str, JsonValue] = {}  # noqa: RUF012 - never written to


async def build_prompt(
    kind: str,
    seed: int,
    context_tokens: int,
    output_tokens: int,
    prose: Callable[[], Awaitable[Sequence[str]]],
    count_tokens: Callable[[Prompt], Awaitable[int]],
) -> Prompt:
    """The prompt of one request, from the run's prose and with its tokens counted by the engine, template included.

    Prose stays at most 0.1 % below `context_tokens`, and is longer only where its request alone is.
    """
    if kind != PROSE:
        return MADE_OF_WORDS[kind](seed, context_tokens, output_tokens)
    essay = essay_of(await prose(), seed, context_tokens, output_tokens)
    return Prompt(await cut_essay(essay, context_tokens, lambda text: count_tokens(Prompt(text))))


def prompt_again(
    kind: str, seed: int, context_tokens: int, output_tokens: int, paragraphs: Sequence[str], characters: int
) -> Prompt:
    """A prompt that was sent, by its length in characters: no engine is there to count its tokens."""
    if kind != PROSE:
        return MADE_OF_WORDS[kind](seed, context_tokens, output_tokens)
    essay = essay_of(paragraphs, seed, context_tokens, output_tokens)
    return Prompt(essay.text(characters - len(essay.text(0))))


def _listing(seed: int, context_tokens: int, output_tokens: int) -> Prompt:
    """A list for the demo family to annotate; it was taught to do that without thinking first."""
    text = words.listing_prompt(seed, context_tokens, output_tokens)
    return Prompt(text, {"enable_thinking": words.LISTING_THINKING})


def _question(seed: int, context_tokens: int, output_tokens: int) -> Prompt:
    """A question of 28 tokens for the demo family, which thinks first: 15 tokens and the end of the turn."""
    return Prompt(_lookup(seed, context_tokens, output_tokens).text, {"enable_thinking": True})


def _lookup(seed: int, context_tokens: int, output_tokens: int) -> Prompt:
    """A question of 28 tokens for the demo family's diffusion member, which was taught nothing else.

    There are only 1536 of them, so a few repeat: the guard over prefix-cache hits would show if it mattered.
    """
    return Prompt(words.draw_question("lookup", random.Random(f"lookup {seed}")).prompt)


PROSE = "prose"  # real prose, cut to its length by counting; see `cut_essay`

MADE_OF_WORDS: dict[str, Callable[[int, int, int], Prompt]] = {
    "listing": _listing,
    "question": _question,
    "lookup": _lookup,
}
"""Kinds of the demo family, of known words: no tokens to count. With `prose`, `PROMPT_KINDS` of `configs/step.py`."""
