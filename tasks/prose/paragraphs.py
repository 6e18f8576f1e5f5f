"""Real English prose without a download: the language reference inside Python itself.

Its text differs between versions of Python, so a run keeps its own copy (`Ledger.write_prompts`), and nodes read that.
"""

from __future__ import annotations

import json
import random
import re
from collections.abc import Iterator, Sequence
from functools import cache

from configs.errors import SpecsweepError

KEPT_AS = "prose.json"
"""The run's copy among its prompts."""

LEAST_WORDS = 12
"""A paragraph below this is a heading or a line of code."""

LEAST_PROSE = 0.9
"""Share of letters and ordinary punctuation from which a paragraph is prose; code and tables stay below."""

_PARAGRAPH = re.compile(r"\n\s*\n")
_LONG_NUMBER = re.compile(r"\d{5}")


class ProseUnreadable(SpecsweepError):
    """The run's copy of the prose is not what a planner writes."""


@cache
def paragraphs_here() -> tuple[str, ...]:
    """All paragraphs of prose, none with a number like a needle's: a thousand of 41 thousand words in Python 3.11."""
    from pydoc_data.topics import topics  # half a megabyte, which not every step needs

    blocks = (" ".join(block.split()) for name in sorted(topics) for block in _PARAGRAPH.split(topics[name]))
    return tuple(dict.fromkeys(block for block in blocks if _is_prose(block)))


def to_json(paragraphs: Sequence[str]) -> bytes:
    """Paragraphs as a run keeps them: a JSON list of strings."""
    return json.dumps(list(paragraphs), indent=0).encode()


def from_json(data: bytes) -> tuple[str, ...]:
    """Paragraphs of a run's copy.

    Raises:
        ProseUnreadable: it is no list of strings, or an empty one.
    """
    try:
        said = json.loads(data)
    except ValueError as error:
        raise ProseUnreadable(f"the run's prompts/{KEPT_AS} is no JSON ({error}): start a new run") from error
    if not isinstance(said, list) or not said or not all(isinstance(one, str) and one.strip() for one in said):
        raise ProseUnreadable(f"the run's prompts/{KEPT_AS} is no list of paragraphs: start a new run")
    return tuple(said)


def words(paragraphs: Sequence[str], seed: int) -> Iterator[str]:
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
