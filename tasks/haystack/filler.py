"""Real English prose, the same on every machine and without a download: the language reference inside Python itself."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator
from functools import cache

LEAST_WORDS = 12
"""A paragraph below this is a heading or a line of code."""

LEAST_PROSE = 0.9
"""Share of letters and ordinary punctuation from which a paragraph is prose; code and tables stay below."""

_PARAGRAPH = re.compile(r"\n\s*\n")
_LONG_NUMBER = re.compile(r"\d{5}")


@cache
def paragraphs() -> tuple[str, ...]:
    """All paragraphs of prose, none with a number like a needle's: a thousand of 41 thousand words in Python 3.11."""
    from pydoc_data.topics import topics  # half a megabyte, which only this step needs

    blocks = (" ".join(block.split()) for name in sorted(topics) for block in _PARAGRAPH.split(topics[name]))
    return tuple(dict.fromkeys(block for block in blocks if _is_prose(block)))


def words(seed: int) -> Iterator[str]:
    """Words of the paragraphs in an order drawn with the seed, without end; each with the white space behind it.

    No paragraph comes twice before all have come, which is after about 55 thousand tokens.
    """
    draw = random.Random(seed)
    while True:
        for paragraph in draw.sample(paragraphs(), len(paragraphs())):
            *most, last = paragraph.split()
            yield from (f"{word} " for word in most)
            yield f"{last}\n\n"


def _is_prose(block: str) -> bool:
    plain = sum(letter.isalpha() or letter in " ,.;:'()-" for letter in block)
    return len(block.split()) >= LEAST_WORDS and plain >= LEAST_PROSE * len(block) and not _LONG_NUMBER.search(block)
