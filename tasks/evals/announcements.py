"""Where a text says in so many words which option is its answer: "the answer is (B)", or "(B) is the answer".

The words are those of `phrases`; here they are joined with a suite's letters.
"""

from __future__ import annotations

import re
from functools import cache
from typing import NamedTuple

from tasks.evals import phrases

MOST_TURNS = 8  # of one announcement: "not A but B", "A, B, C 중 B"; one that turns more often announces nothing
BEFORE_CHARS = 80  # in front of a letter or an announcement, which decide whether its words are meant


class Announcement(NamedTuple):
    """One place where an answer is announced."""

    at: int  # where it begins
    end: int  # where it ends: behind the letter, or behind what is said of it
    named: str | None  # None: several options; an answer that hedges is no answer
    stands: bool = True  # it is neither asked for nor taken back at once

    @property
    def letter(self) -> str | None:
        """The letter that is meant."""
        return self.named if self.stands else None


class Announced(NamedTuple):
    """What a text announces, in the order of the text. In sets None stands for several options at once."""

    answers: list[Announcement]  # as in "the answer is (B)" and "(B) is the correct answer"
    correct: frozenset[str | None]  # options that are only said to be correct, as several statements may be
    only_named: frozenset[str | None]  # options in weaker words, as "the answer would be (B)" and "it is (B)"


def announced(letters: str, text: str) -> Announced:
    """Where a text without thoughts and markdown announces its answer: "the answer is (B)", or "(B) is the answer"."""
    behind = [said for pattern in _behind(letters) for said in pattern.finditer(text)]
    # "(B) is the correct answer: (A) ignores ..." announces B, and nothing after its colon
    blanked = _blanked(text, behind)
    answers: list[Announcement] = []
    named: set[str | None] = set()
    disowned = False
    for cues in (phrases.CUES, phrases.WEAK_CUES):
        for cue in cues.finditer(blanked):
            if (found := _in_front(letters, text, cue)) is None:
                continue
            if phrases.DISOWNED.search(clause(text, cue.start())):
                disowned = True
            elif cues is phrases.WEAK_CUES or phrases.IF_NOTHING_ELSE.search(cue[0]):
                named.add(found.letter)
            else:
                answers.append(found)
    meant = [(said, letter) for said in behind if (letter := _meant(text, said)) is not None]
    answers += [Announcement(_letter_at(said), said.end(), letter) for said, letter in meant if said["answer"]]
    correct = frozenset(letter for said, letter in meant if not said["answer"])
    weak = frozenset(named or ({None} if disowned else ()))
    return Announced(sorted(answers, key=lambda each: each.at), correct, weak)


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
        negated = phrases.NEGATED.match(text, start)
        begin = phrases.FILLER.match(text, negated.end() if negated else start)
        at = begin.end() if begin else start
        letter = text[at : at + 1]
        if not letter or letter.upper() not in letters:
            return _behind_its_text(letters, text, cue) if start == cue.end() else None
        turned = _of_these(letters).match(text, at + 1) or phrases.KOREAN_NEGATED.match(text, at + 1)
        if turned is None:
            break
        start = turned.end()
    else:
        return None
    if _several(letters).match(text, at + 1):
        return Announcement(cue.start(), at + 1, None)
    if not _ends_option(text, at):
        return _behind_its_text(letters, text, cue)
    return Announcement(cue.start(), at + 1, letter.upper(), _stands(text, at + 1))


def _behind_its_text(letters: str, text: str, cue: re.Match[str]) -> Announcement | None:
    """The announcement of an option by its text with the letter behind it: "The answer is Paris (B)."."""
    found = _text_and_letter(letters).match(text, cue.end())
    if found is None or phrases.DENIES.search(found[0]):
        return None
    return Announcement(cue.start(), found.end(), found["bracketed"] or found["bare"], _stands(text, found.end()))


def _stands(text: str, end: int) -> bool:
    """Whether what is said of a letter that ends here is neither asked for nor taken back."""
    return not (phrases.ASKED.match(text, end) or phrases.TAKEN_BACK.match(text, end))


def clause(text: str, at: int) -> str:
    """What stands before `at` in its clause."""
    return re.split(r"[.;:!?\n]", text[max(0, at - BEFORE_CHARS) : at])[-1]


def _ends_option(text: str, at: int) -> bool:
    """Whether the letter at `at` stands for an option, and is not the beginning of a word, a name or a formula."""
    letter = text[at]
    if phrases.AFTER_ANY.match(text, at + 1):
        return True
    if not letter.isupper():
        return False
    if phrases.AFTER_CAPITAL.match(text, at + 1):
        return True
    return letter not in "AI" and phrases.AFTER_NO_WORD.match(text, at + 1) is not None


def _meant(text: str, said: re.Match[str]) -> str | None:
    """The letter of which something is said behind it; None: it is denied, only supposed, or said of several."""
    at = _letter_at(said)
    before = text[max(0, at - BEFORE_CHARS) : at].rstrip("([\"'")
    if said["denied"] or phrases.NOT_SAID.search(before) or phrases.DISOWNED.search(clause(text, at)):
        return None
    if not said["answer"] and phrases.STATEMENT.search(before):
        return None
    return (said["bracketed"] or said["bare"]) if _stands(text, said.end()) else None


def _letter_at(said: re.Match[str]) -> int:
    return said.start("bracketed" if said["bracketed"] else "bare")


@cache
def _behind(letters: str) -> tuple[re.Pattern[str], ...]:
    """`answer`: that a letter is the answer; otherwise only that it is correct; `denied`: that it is not.

    A letter without brackets counts where a sentence or a clause begins: "vitamin C is the best choice" names none.
    """
    return tuple(
        re.compile(
            rf"""(?: (?<![\w\\])\(\s?(?P<bracketed>[{letters}])\s?\)
                   | (?: \A | [\n.:;,!?]\s{{0,3}} | -\s | {begins} ) ["']? (?P<bare>[{letters}])(?![A-Za-z0-9_]) )
                 ["')]{{0,2}} {said}""",
            re.VERBOSE,
        )
        for begins, said in phrases.SAID_BEHIND
    )


@cache
def _text_and_letter(letters: str) -> re.Pattern[str]:
    return re.compile(
        rf"""(?=\W{{0,9}}\w) [^\n()?;]{{1,80}}?
             (?: (?<![A-Za-z\\_])\((?:(?:option|choice)\s)?(?P<bracketed>[{letters}])\)
               | ,?\s(?:option|choice|선택지|보기|选项)\s(?P<bare>[{letters}])(?!\w) )
             (?=\s?(?:[.,}}]?\s*(?:\Z|\n)|[.,]\s|입니다|이다|임|번|이며|이고))""",
        re.VERBOSE,
    )


@cache
def _several(letters: str) -> re.Pattern[str]:
    """The rest of `A or B`, `(A) and (B).`, `A/B`, `A, B`, `AB`: a second option, and no sentence about it."""
    end = r"""(?=[)\]}}"']{0,3}\s*(?:[.!?,]?[ \t]*(?:\Z|\n)|[.!?]\s|are\b|both\b|입니다|이다|모두|都|[}\]"]))"""
    either = (
        rf"[)\]}}]?,?\s*(?:and/or|/|\bor\b|또는|혹은|이나|아니면|或者?)\s*{_MAYBE}[(\[{{]?[{letters}](?![A-Za-z0-9'])"
    )
    return re.compile(rf"(?:{_listed(letters)}{end}|{either}|[{letters}]{{1,4}}(?!\w))")


@cache
def _of_these(letters: str) -> re.Pattern[str]:
    """The rest of `(A), (B), (C) 중`: the options among which the one that follows is chosen."""
    return re.compile(_listed(letters) + r"\s{0,3}(?:중|가운데)(?:에서)?(?![가-힣])")


_MAYBE = r"(?:(?:maybe|possibly|perhaps|also|even|option|choice)\s+){0,2}"


def _listed(letters: str) -> str:
    both = letters + letters.lower()
    joint = r"(?:,\s*(?:and|or)?|and/or|/|&|\+|\band\b|\bor\b|또는|혹은|이?나|및|와|과|이?랑|和|与|或者?)"
    other = rf"""[(\[{{"']{{0,2}}[{both}](?![A-Za-z0-9'])[)\]}}"']{{0,2}}"""
    return rf"""[)\]}}"']{{0,2}}(?:\s*{joint}\s*{_MAYBE}{other})+"""
