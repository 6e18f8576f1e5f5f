"""From an answer to an answer letter: ours, and the readings of others that a careless grader would have published.

Ours is `last_in_body`. A thinking model names letters while it thinks, and other options while it explains. So only the
last thing that the body itself calls its answer counts; where there is none, the reading is None, never a guess.
Whatever repeats in a pattern is bounded, because a model that loops writes thousands of anything.
"""

from __future__ import annotations

import re
import string
import unicodedata
from functools import cache
from typing import NamedTuple

from tasks.frameworks.job import without_thoughts

VERSION = 1  # of the readings; raised whenever one may read an answer differently, which `sweep regrade` then applies

STRICT = re.compile(r"(?<=The answer is )(.*)(?=.)")
"""lm-eval 0.4.13, gpqa_*_cot_zeroshot, filter strict-match. Greedy to the end of the line, less its last character."""

MOST_WRAPPERS = 8  # LaTeX's wrappings that are taken off, one inside the other; a model that loops nests thousands
_LATEX_WRAPPER = re.compile(r"\\(?:text|textbf|textrm|textsf|textit|mathrm|mathbf|mathsf|bf|rm)\s*\{([^{}]*)\}")
_EMPHASIS = re.compile(r"[*`$]|~~|__|\\[()\[\]]|(?<!\w)_(?=\w)|(?<=\w)_(?!\w)")

_TYPOGRAPHY = str.maketrans(
    {"\u2018": "'", "\u2019": "'", "\u201c": '"', "\u201d": '"', "\u2013": " - ", "\u2014": " - "}
)
_PUNCTUATION = str.maketrans("", "", string.punctuation)
MOST_TURNS = 8  # of one announcement: "not A but B", "A, B, C 중 B"; one that turns more often announces nothing
BEFORE_CHARS = 32  # in front of a letter, which decide whether the words behind it are meant: "if (A) is the answer"

_CUE = re.compile(
    r"""\b (?<!wrong\s) (?<!incorrect\s)
          (?: answer (?:\s+(?:choice|option|letter))?
            | (?:correct|right|best|closest|final)\s+(?:option|choice|statement|response|letter) )
          (?:\s+(?:to|of|for|from|among)\s+[^.:\n]{0,80}?)?
          \s* (?: \b(?:is|(?:would|should|must|has\s+to)\s+be)\b \s*[:=]? | [:=] )
      | <(?:final[ _-]?)?answer\s*>
      | (?<![가-힣]) (?:정|해)?답 \s* (?: 은(?![가-힣]) \s*[:=]? | [:=] )
      | \\boxed (?=\s*\{)""",
    re.IGNORECASE | re.VERBOSE,
)
"""What announces an answer. 대답은 (what somebody replied) does not."""

_FILLER = re.compile(
    r"""(?: [\s:"'({\[<] | \\(?:boxed|text|textbf|textrm|mathrm|mathbf|bf|rm)\b
          | (?:the\s+)?(?:option|choice|letter)\b | (?:선택지|보기)(?:\s*중(?:에서)?)?
          | (?:therefore|thus|hence|clearly|definitely|most\s+likely|likely|probably|simply|indeed)\b,? ){0,40}""",
    re.IGNORECASE | re.VERBOSE,
)
"""What may stand between the announcement and the letter."""

_PARTICLE = "입니다|이다|이며|이고|이라|이에요|예요|이므로|임|번|가|는|은|을|를|로|와|과|다|라"
_JOINING = (
    "because|since|as|and|not|but|which|due|given|based|while|whereas|over|instead|rather|for|from|in|by|per|"
    "according|with"
)
"""Words that can follow an option, and can't follow the article A or the pronoun I."""

_AFTER_ANY = re.compile(
    rf"""\s*(?:\Z|\n|[)\]}}>]|</|<br|\|[ \t]*(?:\n|\Z)|[.,;:!?](?!\w)|["'](?!\w)|-\s)|["']?\s?(?:{_PARTICLE})"""
)
_AFTER_CAPITAL = re.compile(rf"\s+(?:{_JOINING})\b|\s*\((?!\w\))")
_AFTER_NO_WORD = re.compile(r"\s+[A-Z]")
"""What may follow a letter that is meant as an option: any; a capital; a capital that is no English word by itself."""

_NEGATED = re.compile(
    r"\s*not\b[^.\n]{0,80}?\b(?:but|rather|instead)\b(?:\s+(?:it\s+is|is|rather|instead)\b)*", re.IGNORECASE
)
_KOREAN_NEGATED = re.compile(r"[)\]}\"']?\s*(?:가|이)?\s*아(?:니라|니고|니며|닌),?\s*")

_NOT_SAID = re.compile(
    r"""(?: \b(?:if|unless|whether|neither|nor|or|assum\w{1,5}|suppos\w{1,5})\s+(?:that\s+)?
          | \b[A-J][)\]"']?\s*(?:,\s*(?:and|or)?|/|&|\band|\bor|또는|혹은|와|과)\s* )
        (?:(?:option|choice|statement)\s+)?\Z""",
    re.IGNORECASE | re.VERBOSE,
)
"""In front of a letter of which something is supposed only, or which is one of several."""

_STATEMENT = re.compile(r"\b(?:statement|part|reason|premise|claim)s?\s+\Z", re.IGNORECASE)
"""In front of a letter that names something else than an option: that statement (A) is correct is no answer yet."""


class Readings(NamedTuple):
    """One answer as several readers have it; None: that reader finds nothing."""

    last_in_body: str | None  # ours: a letter
    strict: str | None  # behind "The answer is": a letter where lm-eval's exact_match takes it for one, else as is
    flexible: str | None  # the last option in brackets, without lm-eval's fallbacks for answers that have none
    first: str | None  # the first option named anywhere, the thinking included: the trap


def read(letters: str, reasoning: str, body: str) -> Readings:
    """All readings of one answer; `letters` are the suite's, e.g. ABCD. Without any, nothing is read."""
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

    Without an announcement, the letter that has a line of its own counts. Without one of those, it is the letter that
    is said to be correct, else the one that is named as an option at all. Where several are, it is none of them.
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


class Announcement(NamedTuple):
    """One place where an answer is announced."""

    at: int  # where it begins
    end: int  # where the announcement itself ends: behind the cue, or behind what is said of the letter
    letter: str | None  # None: it names several options; an answer that hedges is no answer


class Announced(NamedTuple):
    """What a text announces, in the order of the text."""

    answers: list[Announcement]  # as in "the answer is (B)" and "(B) is the correct answer"
    correct: frozenset[str]  # options that are only said to be correct, as several statements may be


def announced(letters: str, text: str) -> Announced:
    """Where a text without thoughts and markdown announces its answer: "the answer is (B)", or "(B) is the answer"."""
    behind = [said for pattern in (_behind(letters), _behind_korean(letters)) for said in pattern.finditer(text)]
    # "(B) is the correct answer: (A) ignores ..." announces B, and nothing after its colon
    cues = _CUE.finditer(_blanked(text, behind))
    answers = [each for cue in cues if (each := _in_front(letters, text, cue)) is not None]
    meant = [(said, letter) for said in behind if (letter := _meant(text, said)) is not None]
    answers += [Announcement(_letter_at(said), said.end(), letter) for said, letter in meant if said["answer"]]
    correct = frozenset(letter for said, letter in meant if not said["answer"])
    return Announced(sorted(answers, key=lambda each: each.at), correct)


def _blanked(text: str, spans: list[re.Match[str]]) -> str:
    parts, done = [], 0
    for start, end in sorted((_letter_at(said), said.end()) for said in spans):
        parts += [text[done:start], " " * (end - max(start, done))]
        done = max(done, end)
    return "".join([*parts, text[done:]])


def _in_front(letters: str, text: str, cue: re.Match[str]) -> Announcement | None:
    """The announcement that a cue begins; None: no letter follows."""
    start = cue.end()
    for _ in range(MOST_TURNS):
        negated = _NEGATED.match(text, start)
        begin = _FILLER.match(text, negated.end() if negated else start)
        at = begin.end() if begin else start
        letter = text[at : at + 1]
        if not letter or letter.upper() not in letters:
            return None
        turned = _of_these(letters).match(text, at + 1) or _KOREAN_NEGATED.match(text, at + 1)
        if turned is None:
            break
        start = turned.end()
    else:
        return None
    if _several(letters).match(text, at + 1):
        return Announcement(cue.start(), cue.end(), None)
    return Announcement(cue.start(), cue.end(), letter.upper()) if _ends_option(text, at) else None


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


def _meant(text: str, said: re.Match[str]) -> str | None:
    """The letter of which something is said behind it; None: it is denied, only supposed, or said of several."""
    at = _letter_at(said)
    before = text[max(0, at - BEFORE_CHARS) : at].rstrip("([\"'")
    if said["denied"] or _NOT_SAID.search(before) or (not said["answer"] and _STATEMENT.search(before)):
        return None
    return said["bracketed"] or said["bare"]


def _letter_at(said: re.Match[str]) -> int:
    return said.start("bracketed" if said["bracketed"] else "bare")


@cache
def _behind(letters: str) -> re.Pattern[str]:
    """`answer`: that a letter is the answer; otherwise only that it is correct.

    A letter without brackets counts where a sentence or a clause begins: "vitamin C is the best choice" names none.
    """
    begins = "option|choice|letter|answer|so|thus|hence|therefore|that|and|but|then|only|because"
    adverb = "clearly|therefore|thus|hence|indeed|actually|definitely|obviously|then|also"
    gap = r"[ \t]{1,3}"
    right = rf"(?:most{gap})?(?:correct|right|best|closest|likely)"
    return re.compile(
        rf"""(?: (?<![\w\\])\(\s?(?P<bracketed>[{letters}])\s?\)
               | (?: \A | [\n.:;,!?]\s{{0,3}} | -\s | \b(?i:{begins}){gap} ) ["']? (?P<bare>[{letters}])(?!\w) )
             ["')]{{0,2}} {gap} (?i:
               (?: is | must{gap}be | has{gap}to{gap}be ) (?P<denied>{gap}not|n't)? {gap} (?:(?:{adverb}){gap}){{0,2}}
               (?: (?P<answer> (?:(?:the|our|my|a){gap})?{right}{gap}(?:answer|option|choice|response|one)\b
                     | (?:the|our|my){gap}(?:final{gap})?answer\b ) (?!\s?\?)
                 | (?:the{gap})?{right}(?=\s?(?:[.,;:!)]|\Z|\n|-\s|(?:because|since|as|here)\b)) ) )""",
        re.VERBOSE,
    )


@cache
def _behind_korean(letters: str) -> re.Pattern[str]:
    """The same of `(B)가 정답입니다`, and of `(B)가 맞습니다`, which says that B is correct."""
    ends = r"\s?(?:[.,!)]|\Z|\n|입니다|이다|이며|이고|이므로|임|이에요|예요|으로|이\s?[됩된되])"
    return re.compile(
        rf"""(?: (?<![\w\\])\(\s?(?P<bracketed>[{letters}])\s?\)
               | (?: \A | [\n.:;,!?]\s{{0,3}} | (?:선택지|보기|따라서|그러므로|즉)\s{{1,3}} ) ["']?
                 (?P<bare>[{letters}])(?![A-Za-z0-9]) )
             ["')]{{0,2}} (?:\s?번)? (?:이|가)\s{{0,2}}
             (?: (?P<answer>정?답(?={ends})) | 맞(?:[습다고음아]|으므|는\s) ) (?P<denied>(?!))?""",
        re.VERBOSE,
    )


@cache
def _several(letters: str) -> re.Pattern[str]:
    """The rest of `A or B`, `(A) and (B).`, `A/B`, `A, B`: a second option, and no sentence about it."""
    end = r"(?=\s*(?:[.!?,]?\s*(?:\Z|\n)|[.!?]\s|are\b|입니다|이다))"
    return re.compile(_listed(letters) + end)


@cache
def _of_these(letters: str) -> re.Pattern[str]:
    """The rest of `(A), (B), (C) 중`: the options among which the one that follows is chosen."""
    return re.compile(_listed(letters) + r"\s{0,3}(?:중|가운데)(?:에서)?(?![가-힣])")


def _listed(letters: str) -> str:
    both = letters + letters.lower()
    joint = r"(?:,\s*(?:and|or)?|/|&|\band\b|\bor\b|또는|혹은|와|과)"
    return rf"[)\]}}]?(?:\s*{joint}\s*[(\[{{]?[{both}](?![\w'])[)\]}}]?)+"
