"""Figures about an output that tell language from loops and noise, whatever the alphabet and with or without blanks.

Every bound on them is in `tasks.guards.text`, chosen by a trial on healthy and planted texts: docs/log.md.
"""

from __future__ import annotations

import unicodedata
import zlib
from collections.abc import Hashable, Sequence
from itertools import pairwise

WORD_RUN = 4
"""Words in a row that must repeat together to count."""

TOKEN_RUN = 16
"""Token ids in a row that must. Healthy JSON repeats 71 % of its runs of 4 (indent, key, quote, colon), 10 % of 16."""

CHAR_RUN = 48
"""Characters in a row that must: as much text as `TOKEN_RUN` tokens, longer than a key of JSON with its indent."""

COMPRESSED_BYTES = 4096
"""Only so much of an output's end is compressed: a longer text always compresses better, and loops come last."""

Columns = dict[str, float | None]


def text_columns(text: str, token_ids: Sequence[int] | None) -> Columns:
    """What is measured of an output, as columns of `requests`; each is null where there is too little to measure.

    Args:
        text: the output, thinking included.
        token_ids: its token ids; None: the engine sent none.
    """
    end = text.encode()[-COMPRESSED_BYTES:]
    return {
        "loop_share": repeated_share(text.split(), WORD_RUN),
        "token_loop_share": None if token_ids is None else repeated_share(token_ids, TOKEN_RUN),
        "char_loop_share": repeated_share(text, CHAR_RUN),
        "distinct_share": len(set(token_ids)) / len(token_ids) if token_ids else None,
        "compressed_share": len(zlib.compress(end)) / len(end) if end else None,
    }


def repeated_share(items: Sequence[Hashable], run: int) -> float | None:
    """Share of the runs of `run` items that occurred before, 0 to 1; None for fewer than two runs."""
    items = items if isinstance(items, str) else tuple(items)  # so that a run, which is a slice, can be hashed
    runs = len(items) - run + 1
    if runs < 2:
        return None
    return 1 - len({items[start : start + run] for start in range(runs)}) / runs


def unprintable_share(text: str) -> float:
    """Share of characters that no writer types: control, private, unassigned, and the mark of broken UTF-8."""
    return sum(map(_is_unprintable, text)) / len(text) if text else 0.0


def _is_unprintable(char: str) -> bool:
    return char == "\ufffd" or (unicodedata.category(char) in _UNPRINTABLE and char not in "\n\r\t")


_UNPRINTABLE = frozenset({"Cc", "Co", "Cn", "Cs"})
"""Not Cf: joiners and marks of direction are part of emoji and of several scripts."""


def scripts_in(text: str) -> int:
    """How many writing systems the text has letters of; Chinese characters and kana are one."""
    return len({_script(char) for char in text if char.isalpha()})


def mixed_share(text: str) -> float:
    """Letters that follow a letter of another writing system within a word, over all letters."""
    letters = sum(map(str.isalpha, text))
    mixed = sum(a.isalpha() and b.isalpha() and _script(a) != _script(b) for a, b in pairwise(text))
    return mixed / letters if letters else 0.0


def _script(letter: str) -> str:
    """The first word of its name in Unicode: LATIN, HANGUL, ..."""
    first = unicodedata.name(letter, "NAMELESS").split()[0]
    return "CJK" if first in {"CJK", "HIRAGANA", "KATAKANA", "KATAKANA-HIRAGANA", "IDEOGRAPHIC"} else first
