"""Where a text announces its answer: in front of the letter ("the answer is (B)"), or behind it ("(B) is the answer").

Pure, standard library only. The text is expected without markdown emphasis; extractors.py flattens it. Whatever repeats
in a pattern is bounded, because a model that loops writes thousands of anything.
"""

from __future__ import annotations

import re
from functools import cache
from typing import NamedTuple

MOST_TURNS = 8
"""Of one announcement: "not A but B", "A, B, C 중 B". Whoever turns more often announces nothing."""

BEFORE_CHARS = 32
"""Characters in front of a letter that decide whether what stands behind it is meant: "if (A) is the answer"."""

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


class Announcement(NamedTuple):
    """One place where an answer is announced."""

    at: int
    """Where it begins."""
    end: int
    """Where the announcement itself ends: behind the cue, or behind what is said of the letter."""
    letter: str | None
    """None: it names several options. Whoever hedges has not answered."""


class Announced(NamedTuple):
    """What a text announces, in the order of the text."""

    answers: list[Announcement]
    """"The answer is (B)", "(B) is the correct answer"."""
    correct: frozenset[str]
    """Options of which the text only says that they are correct, as it may of several statements."""


def announced(letters: str, text: str) -> Announced:
    """All announcements of a flattened text.

    Args:
        letters: the suite's answer letters, e.g. ABCD.
        text: without thoughts and markdown.
    """
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
