"""Guards over what the model wrote: loops and noise.

Dummy weights write noise by construction, so callers don't ask about their rows. The trial behind the bounds is in
docs/log.md.
"""

from __future__ import annotations

import unicodedata
import zlib
from collections.abc import Hashable, Sequence
from itertools import pairwise
from statistics import fmean

from warehouse.ledger.tables import Row
from warehouse.ledger.verdicts import Finding, Reason, Severity

WORD_RUN = 4  # words in a row that must repeat together to count

TOKEN_RUN = 16
"""Token ids in a row that must. Healthy JSON repeats 71 % of its runs of 4 (indent, key, quote, colon), 10 % of 16."""

CHAR_RUN = 48  # characters in a row that must: the text of `TOKEN_RUN` tokens, longer than an indented key of JSON

COMPRESSED_BYTES = 4096
"""Only so much of an output's end is compressed: a longer text always compresses better, and loops come last."""

Columns = dict[str, float | None]


def text_columns(text: str, token_ids: Sequence[int] | None) -> Columns:
    """What is measured of an output, thinking included, as columns of `requests`; null: too little to measure."""
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
    odd = (char == "\ufffd" or (unicodedata.category(char) in _UNPRINTABLE and char not in "\n\r\t") for char in text)
    return sum(odd) / len(text) if text else 0.0


_UNPRINTABLE = frozenset({"Cc", "Co", "Cn", "Cs"})  # not Cf: emoji and several scripts have joiners, marks of direction


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


LOOP_SUSPECT_SHARE = 0.5
"""Share of repeated runs from which outputs are suspect. Up to 2000 tokens, healthy prose, code, CJK, listings, JSON
and tables stay below 0.45 by every measure; a table of 8000 tokens reaches 0.53."""

LOOP_REJECTED_SHARE = 0.8  # Share from which an output is one loop. A cycle of 56 words in 256 reaches 0.78.
SOME_OUTPUTS = 0.1  # share of outputs that may be bad before the condition is suspect, however good its mean is
MOST_OUTPUTS = 0.5  # share from which it is rejected

COMPRESSED_SUSPECT = 0.12
"""Bytes after zlib over bytes before, of the last 4096. Sentences that differ by a running number: 0.11; the most
monotonous healthy text (200 equal objects of indented JSON) 0.14, prose 0.35 and more."""

SHORTEST_TOKENS = 64  # shorter outputs are not judged by how few different tokens they have
FEWEST_TOKENS = 5  # different token ids that a text has at least: counting to 300 takes 12, the ruler of a table 8
UNPRINTABLE_SHARE = 0.05  # one broken character in a long answer is a cut emoji, one in twenty noise; healthy text: 0
MIXED_SCRIPTS = 5  # writing systems that no reader expects in one output, if letters of them also share words

MIXED_SHARE = 0.05
"""Healthy: Korean with English terms and a formula 0.08 in 3 scripts, Japanese 0.05 in 2, a list of greetings in 11
languages 0.00. Tokens drawn from a large vocabulary: 0.12 in 7."""

IMPROBABLE_SUSPECT_NATS = -4.0
"""Mean log-probability of an output's tokens under the model that wrote them. Greedy text is above -1, sampled at
temperature 1 it is minus the entropy, -1 to -3: -4 is one token in 55, at every token."""

IMPROBABLE_REJECTED_NATS = -5.0
"""One token in 148. Uniform noise over V tokens is at best -ln V: -12.5 for 262 144, -6.4 for the demo family's 576."""


def degenerate_text(rows: Sequence[Row]) -> Finding | None:
    """The outputs of a condition must be language: loops and noise are fast, are accepted, and mean nothing.

    Rows have the columns of `text_columns`; none is of dummy weights, which write noise.
    """
    return (_looping(rows) or _gibberish(rows)) if rows else None


def _looping(rows: Sequence[Row]) -> Finding | None:
    shares = [max(_known(row, *_LOOPS), default=0.0) for row in rows]
    mean, loops = fmean(shares), sum(share >= LOOP_REJECTED_SHARE for share in shares)
    compressed = [share for row in rows for share in _known(row, "compressed_share")]
    if mean >= LOOP_SUSPECT_SHARE:
        severity: Severity = "rejected" if mean >= LOOP_REJECTED_SHARE else "suspect"
        bound = LOOP_REJECTED_SHARE if severity == "rejected" else LOOP_SUSPECT_SHARE
        sentence = (
            f"{mean:.0%} of the outputs' runs ({WORD_RUN} words, {TOKEN_RUN} tokens or {CHAR_RUN} characters) repeat "
            f"earlier ones ({severity} from {bound:.0%})"
        )
        return Finding(Reason.LOOPING_TEXT, severity, sentence)
    if loops > SOME_OUTPUTS * len(rows):
        sentence = f"{loops} of {len(rows)} outputs are loops (suspect above {SOME_OUTPUTS:.0%})"
        return Finding(Reason.LOOPING_TEXT, "suspect", sentence)
    if compressed and fmean(compressed) <= COMPRESSED_SUSPECT:
        sentence = f"the outputs compress to {fmean(compressed):.1%} (suspect up to {COMPRESSED_SUSPECT:.0%})"
        return Finding(Reason.LOOPING_TEXT, "suspect", sentence)
    return None


_LOOPS = ("loop_share", "token_loop_share", "char_loop_share")


def _gibberish(rows: Sequence[Row]) -> Finding | None:
    found = [why for why in map(_why_no_language, rows) if why]
    if len(found) <= SOME_OUTPUTS * len(rows):
        return None
    severity: Severity = "rejected" if len(found) >= MOST_OUTPUTS * len(rows) else "suspect"
    return Finding(Reason.GIBBERISH, severity, f"{len(found)} of {len(rows)} outputs are no language: {found[0]}")


def _why_no_language(row: Row) -> str | None:
    """What gives an output away that is no loop; None: nothing does. Random words of a language only its model sees."""
    text, tokens, distinct = row.get("text") or "", row.get("completion_tokens") or 0, row.get("distinct_share")
    if tokens and not text:
        return f"{tokens} tokens without a character"
    if distinct is not None and tokens >= SHORTEST_TOKENS and round(distinct * tokens) < FEWEST_TOKENS:
        return f"{tokens} tokens, {round(distinct * tokens)} different ones"
    if (share := unprintable_share(text)) > UNPRINTABLE_SHARE:
        return f"{share:.0%} of the characters can't be printed"
    if (scripts := scripts_in(text)) >= MIXED_SCRIPTS and (share := mixed_share(text)) > MIXED_SHARE:
        return f"letters of {scripts} writing systems, {share:.0%} of them beside another one's"
    return None


def _known(row: Row, *columns: str) -> list[float]:
    return [row[column] for column in columns if row.get(column) is not None]


def improbable_text(mean_logprobs: Sequence[float | None], *, is_real: bool = True) -> Finding | None:
    """What a model of real weights writes must be probable to it (nats per token): random words are seen only so."""
    known = [value for value in mean_logprobs if value is not None]
    if not known or not is_real or fmean(known) > IMPROBABLE_SUSPECT_NATS:
        return None
    severity: Severity = "rejected" if fmean(known) <= IMPROBABLE_REJECTED_NATS else "suspect"
    bound = IMPROBABLE_REJECTED_NATS if severity == "rejected" else IMPROBABLE_SUSPECT_NATS
    sentence = f"its own tokens have a mean log-probability of {fmean(known):.1f} ({severity} up to {bound:g}) nats"
    return Finding(Reason.GIBBERISH, severity, sentence)
