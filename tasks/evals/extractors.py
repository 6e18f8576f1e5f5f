"""From an answer to an answer letter: ours, and the readings of others that a careless grader would have published.

Pure, standard library only. Ours is `last_in_body`: a thinking model names letters while it thinks, and names other
options while it explains, so only the last thing that the body itself calls its answer counts. Where there is none, the
reading is None, never a guess.
"""

from __future__ import annotations

import re
import string
import unicodedata
from functools import cache
from typing import NamedTuple

VERSION = 1
"""Of the readings below; raised whenever one of them may read an answer differently. `sweep regrade` applies it."""

THOUGHT = re.compile(r"<think>.*?(?:</think>|\Z)", re.DOTALL)
"""Thoughts that the engine left in the body; those that were cut off have no end."""

STRICT = re.compile(r"(?<=The answer is )(.*)(?=.)")
"""lm-eval 0.4.13, gpqa_*_cot_zeroshot, filter strict-match. Greedy to the end of the line, less its last character."""

_CUE = re.compile(
    r"""\banswer (?:\s+(?:choice|option|letter))? (?:\s+to\s+[^.:\n]{0,80}?)?
          \s* (?: \b(?:is|(?:would|should|must|has\s+to)\s+be)\b \s*[:=]? | [:=] )
      | (?<![가-힣]) (?:정|해)?답 \s* (?: 은(?![가-힣]) \s*[:=]? | [:=] )
      | \\boxed (?=\s*\{)""",
    re.IGNORECASE | re.VERBOSE,
)
"""What announces an answer. 대답은 (what somebody replied) does not."""

_FILLER = re.compile(
    r"""(?: [\s:"'({\[<] | \\boxed | (?:the\s+)?(?:option|choice|letter)\b | 선택지 | 보기
          | (?:therefore|thus|hence|clearly|definitely|most\s+likely|likely|probably|simply|indeed)\b,? ){0,40}""",
    re.IGNORECASE | re.VERBOSE,
)
"""What may stand between the announcement and the letter; bounded, because a model that loops writes thousands."""

_PARTICLE = "입니다|이다|이며|이고|이라|이에요|예요|이므로|임|번|가|는|은|을|를|로|와|과|다|라"
_JOINING = (
    "because|since|as|and|not|but|which|due|given|based|while|whereas|over|instead|rather|for|from|in|by|per|"
    "according|with"
)
"""Words that can follow an option, and can't follow the article A or the pronoun I."""

_AFTER_ANY = re.compile(rf"\s*(?:\Z|\n|[)\]}}>]|[.,;:!?](?!\w)|[\"'](?!\w)|-\s)|\s?(?:{_PARTICLE})")
_AFTER_CAPITAL = re.compile(rf"\s+(?:{_JOINING})\b|\s*\((?!\w\))")
_AFTER_NO_WORD = re.compile(r"\s+[A-Z]")
"""What may follow a letter that is meant as an option: any; a capital; a capital that is no English word by itself."""

_NEGATED = re.compile(
    r"\s*not\b[^.\n]{0,80}?\b(?:but|rather|instead)\b(?:\s+(?:it\s+is|is|rather|instead)\b)*", re.IGNORECASE
)
_KOREAN_NEGATED = re.compile(r"[)\]}\"']?\s*(?:가|이)?\s*아(?:니라|니고|니며|닌),?\s*")
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
    """Ours: the letter after the last announcement, else the last line that is a letter, else the last `(X)`."""
    text = _plain(without_thoughts(body))
    for cue in reversed(list(_CUE.finditer(text))):
        named = _named(letters, text, cue.end())
        if named is _SEVERAL:
            text = text[cue.end() :].split("\n", 1)[-1] if "\n" in text[cue.end() :] else ""
            break
        if named is not None:
            return named
    line = list(_line(letters).finditer(text))
    if line:
        return line[-1].group(1).upper()
    found = list(_option(letters).finditer(text))
    return found[-1].group(1).upper() if found else None


def without_thoughts(body: str) -> str:
    """The body without thoughts that the engine left in it, also those whose opening tag was part of the prompt."""
    return THOUGHT.sub("", body).rsplit("</think>", 1)[-1]


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


_SEVERAL = "several"
"""Said of an announcement that names more than one option: whoever hedges has not answered."""


def _named(letters: str, text: str, start: int) -> str | None:
    """The letter that an announcement ending at `start` names; `_SEVERAL`; None: it names none."""
    negated = _NEGATED.match(text, start)
    begin = _FILLER.match(text, negated.end() if negated else start)
    if begin is None:
        return None
    at = begin.end()
    letter = text[at : at + 1]
    if not letter or letter.upper() not in letters:
        return None
    korean = _KOREAN_NEGATED.match(text, at + 1)
    if korean:
        return _named(letters, text, korean.end())
    if _several(letters).match(text, at + 1):
        return _SEVERAL
    return letter.upper() if _ends_option(text, at) else None


def _ends_option(text: str, at: int) -> bool:
    """Whether the letter at `at` stands for an option, and is not the beginning of a word, a name or a formula."""
    letter = text[at]
    if _AFTER_ANY.match(text, at + 1):
        return True
    if not letter.isupper():
        return False
    if _AFTER_CAPITAL.match(text, at + 1):
        return True
    return letter not in "AI" and _AFTER_NO_WORD.match(text, at + 1) is not None


@cache
def _several(letters: str) -> re.Pattern[str]:
    """The rest of `A or B`, `(A) and (B).`, `A/B`, `A, B`: a second option, and no sentence about it."""
    both = letters + letters.lower()
    joint = r"(?:,\s*(?:and|or)?|/|&|\band\b|\bor\b|또는|혹은|와|과)"
    end = r"(?=\s*(?:[.!?,]?\s*(?:\Z|\n)|[.!?]\s|are\b|입니다|이다))"
    return re.compile(rf"[)\]}}]?(?:\s*{joint}\s*[(\[{{]?[{both}](?![\w'])[)\]}}]?)+{end}")


@cache
def _line(letters: str) -> re.Pattern[str]:
    edge = r"[ \t\"'()\[\]{}<>.:,#>-]*"
    return re.compile(rf"(?mi)^{edge}([{letters}]){edge}$")


@cache
def _option(letters: str) -> re.Pattern[str]:
    """`(X)` of a sentence: no argument of a function, as in P(A), and none that is ruled out in so many words."""
    return re.compile(rf"(?<![\w\\])(?<!not )\(\s*([{letters}])\s*\)")


def _plain(text: str) -> str:
    """Full-width and curly characters as usual ones, markdown emphasis and LaTeX's wrappings of text gone."""
    flat = _EMPHASIS.sub("", unicodedata.normalize("NFKC", text).translate(_TYPOGRAPHY))
    while (unwrapped := _LATEX_WRAPPER.sub(r"\1", flat)) != flat:
        flat = unwrapped
    return flat


def _strict(letters: str, body: str) -> str | None:
    found = STRICT.findall(body)
    return letter_of(letters, found[0].strip()) if found else None


def _first(letters: str, text: str) -> str | None:
    """The first `(X)` or announced letter, whichever comes first."""
    bracket = bracketed(letters).search(text)
    for cue in _CUE.finditer(text, 0, bracket.start() if bracket else len(text)):
        named = _named(letters, text, cue.end())
        if named is not None and named is not _SEVERAL:
            return named
    return bracket.group(1) if bracket else None
