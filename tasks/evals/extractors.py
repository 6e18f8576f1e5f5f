"""From an answer to an answer letter: ours, and the readings of others that a careless grader would have published.

Pure, on the standard library only. Ours is `last_in_body`: a thinking model names letters while it thinks, and names
other options while it explains, so only the last thing that the body itself calls its answer counts. Where there is
none, the reading is None, never a guess.
"""

from __future__ import annotations

import re
import string
import unicodedata
from functools import cache
from typing import NamedTuple

from tasks.evals.announcements import announced
from tasks.frameworks.thoughts import without_thoughts

VERSION = 1
"""Of the readings below; raised whenever one of them may read an answer differently. `sweep regrade` applies it."""

STRICT = re.compile(r"(?<=The answer is )(.*)(?=.)")
"""lm-eval 0.4.13, gpqa_*_cot_zeroshot, filter strict-match. Greedy to the end of the line, less its last character."""

MOST_WRAPPERS = 8
"""LaTeX's wrappings of text that are taken off, one inside the other; a model that loops nests thousands."""

_LATEX_WRAPPER = re.compile(r"\\(?:text|textbf|textrm|textsf|textit|mathrm|mathbf|mathsf|bf|rm)\s*\{([^{}]*)\}")
_EMPHASIS = re.compile(r"[*`$]|~~|__|\\[()\[\]]|(?<!\w)_(?=\w)|(?<=\w)_(?!\w)")

_TYPOGRAPHY = str.maketrans(
    {"\u2018": "'", "\u2019": "'", "\u201c": '"', "\u201d": '"', "\u2013": " - ", "\u2014": " - "}
)
_PUNCTUATION = str.maketrans("", "", string.punctuation)


class Readings(NamedTuple):
    """One answer as several readers have it; None: that reader finds nothing."""

    last_in_body: str | None
    """Ours: a letter."""
    strict: str | None
    """What follows "The answer is": a letter where lm-eval's exact_match would take it for one, else as it stands."""
    flexible: str | None
    """The last option in brackets, without lm-eval's fallbacks for answers that have none."""
    first: str | None
    """The first option named anywhere, the thinking included: the trap."""


def read(letters: str, reasoning: str, body: str) -> Readings:
    """All readings of one answer.

    Args:
        letters: the suite's answer letters, e.g. ABCD; empty where an answer is no letter: then nothing is read.
        reasoning: the thinking, if the engine told it apart.
        body: the answer.
    """
    if not letters:
        return Readings(None, None, None, None)
    return Readings(
        last_in_body=last_in_body(letters, body),
        strict=_strict(letters, body),
        flexible=last_bracketed(letters, body),
        first=_first(letters, _plain(reasoning + "\n" + body)),
    )


def letter_of(letters: str, reading: str) -> str:
    """What somebody read, as a letter if it is one: as in lm-eval's exact_match, case and punctuation don't count."""
    bare = reading.strip().translate(_PUNCTUATION).strip().upper()
    return bare if len(bare) == 1 and bare in letters else reading


def last_in_body(letters: str, body: str) -> str | None:
    """Ours: the letter that is announced last.

    Without an announcement: the only one that has a line of its own, else that is said to be correct, else that is
    named as an option at all. Where several are, it is none of them.
    """
    text = _plain(without_thoughts(body))
    said = announced(letters, text)
    if said.answers:
        last = said.answers[-1]
        if last.letter is not None:
            return last.letter
        text = text[last.end :].partition("\n")[2]
        said = announced(letters, text)
    lines = {found.group(1).upper() for found in _line(letters).finditer(text)}
    for named in (lines, said.correct, _options(letters, text)):
        if named:
            return next(iter(named)) if len(named) == 1 else None
    return None


def last_bracketed(letters: str, text: str) -> str | None:
    """The last `(X)`, as lm-eval's flexible-extract takes it."""
    found = bracketed(letters).findall(text)
    return str(found[-1]) if found else None


def first_bracketed(letters: str, text: str) -> str | None:
    """The first `(X)`."""
    found = bracketed(letters).search(text)
    return found.group(1) if found else None


@cache
def bracketed(letters: str) -> re.Pattern[str]:
    """`(X)` for the suite's letters."""
    return re.compile(rf"\(([{letters}])\)")


@cache
def _line(letters: str) -> re.Pattern[str]:
    edge = r"[ \t\"'()\[\]{}<>.:,#>-]*"
    return re.compile(rf"(?mi)^{edge}([{letters}]){edge}$")


def _options(letters: str, text: str) -> frozenset[str]:
    """The options that are named, `(X)` or `option X`; none where one of them is ruled out in so many words."""
    if _ruled_out(letters).search(text):
        return frozenset()
    return frozenset(found.group(1) or found.group(2) for found in _option(letters).finditer(text))


@cache
def _option(letters: str) -> re.Pattern[str]:
    """An option in a sentence: no argument of a function, as in P(A)."""
    word = r"(?i:option|choice|answer)\s{1,3}"
    return re.compile(
        rf"(?<![\w\\])(?<!not )(?:\(\s{{0,3}}(?:{word})?([{letters}])\s{{0,3}}\)|{word}([{letters}])(?![\w'-]))"
    )


@cache
def _ruled_out(letters: str) -> re.Pattern[str]:
    wrong = "not|wrong|incorrect|false|impossible|ruled|excluded|eliminated"
    verb = r"rul(?:e|es|ed|ing)\s{1,3}out|eliminat(?:e|es|ed|ing)|exclud(?:e|es|ed|ing)|discard(?:s|ed|ing)?"
    named = rf"(?:\([{letters}]\)|(?i:option|choice)\s{{1,3}}[{letters}]\b)"
    return re.compile(
        rf"{named}\s{{1,3}}(?i:(?:is|was|are)(?:n't|\s{{1,3}}(?:\w{{1,12}}\s{{1,3}})?(?:{wrong})\b))"
        rf"|(?i:\b(?:{verb})\s{{1,3}}(?:option\s{{1,3}}|choice\s{{1,3}})?)(?:\([{letters}]\)|[{letters}]\b)"
    )


def _plain(text: str) -> str:
    """Full-width and curly characters as usual ones, markdown emphasis and LaTeX's wrappings of text gone."""
    flat = _EMPHASIS.sub("", unicodedata.normalize("NFKC", text).translate(_TYPOGRAPHY))
    for _ in range(MOST_WRAPPERS):
        flat, taken_off = _LATEX_WRAPPER.subn(r"\1", flat)
        if not taken_off:
            break
    return flat


def _strict(letters: str, body: str) -> str | None:
    found = STRICT.findall(body)
    return letter_of(letters, found[0].strip()) if found else None


def _first(letters: str, text: str) -> str | None:
    """The first `(X)` or announced letter, whichever comes first."""
    bracket = bracketed(letters).search(text)
    for said in announced(letters, text[: bracket.end()] if bracket else text).answers:
        if said.letter is not None:
            return said.letter
    return bracket.group(1) if bracket else None
