"""From an answer to an answer letter: ours, and the readings of others that a careless grader would have published.

Ours is `last_in_body`. A thinking model names letters while it thinks, and other options while it explains. So only the
last thing that the body itself calls its answer counts; where there is none, the reading is None, never a guess.
What announces an answer is found in `announcements`, by the words of `phrases`. Whatever repeats in a pattern is
bounded: a model that loops writes thousands of anything.
"""

from __future__ import annotations

import re
import string
import unicodedata
from collections.abc import Iterator, Sequence, Set
from functools import cache
from typing import NamedTuple

from tasks.evals import phrases
from tasks.evals.announcements import Announcement, announced, clause
from tasks.frameworks.thoughts import end_unknown, without_thoughts

VERSION = 2  # of the readings; raised whenever one may read an answer differently, which `sweep regrade` then applies

STRICT = re.compile(r"(?<=The answer is )(.*)(?=.)")
"""lm-eval 0.4.13, gpqa_*_cot_zeroshot, filter strict-match. Greedy to the end of the line, less its last character."""

MOST_WRAPPERS = 8  # LaTeX's wrappings that are taken off, one inside the other; a model that loops nests thousands
_LATEX_WRAPPER = re.compile(
    r"\\(?:text|textbf|textrm|textsf|textit|mathrm|mathbf|mathsf|mathit|mbox|underline|bf|rm)\s*\{([^{}]*)\}"
)
_EMPHASIS = re.compile(
    r"[*`$]|~~|__|\\[()\[\]]|(?<!\w)_(?=\w)|(?<=\w)_(?!\w)|\\(?:left|right|bf|rm|it|,|;|!)(?![a-z])"
    r"|</?(?:b|strong|em|i|u|p|span|div|code|center|mark|h\d)(?:\s[^<>]{0,80})?>"
)
_TYPOGRAPHY = str.maketrans({
    "\u2018": "'", "\u2019": "'", "\u201c": '"', "\u201d": '"', "\u300c": '"', "\u300d": '"', "\u2013": " - ",
    "\u2014": " - ", "\u3002": ". ", "\u3010": "[", "\u3011": "]", "\u3001": ", ",
})  # fmt: skip
_PUNCTUATION = str.maketrans("", "", string.punctuation)
_SENTENCE_END = re.compile(r"(?<=[.!?;])[\"')\]]{0,3}\s+|\n")
_CONDITIONED = re.compile(r"\b[A-J][)\]}\"']{0,2},?\s{0,3}(?:but\s)?(?:only\s)?\Z")  # "(A) if ..."
_BLANK_LINES = re.compile(r"\n{3,}")


class Readings(NamedTuple):
    """One answer as several readers have it; None: that reader finds nothing."""

    last_in_body: str | None  # ours: a letter
    strict: str | None  # behind "The answer is": a letter where lm-eval's exact_match takes it for one, else as is
    flexible: str | None  # the last option in brackets, without lm-eval's fallbacks for answers that have none
    first: str | None  # the first option named anywhere, the thinking included: the trap


def read(letters: str, reasoning: str, body: str) -> Readings:
    """All readings of one answer; `letters` are the suite's, e.g. ABCD. Without any, nothing is read.

    All but the trap read the body without thoughts that were left in it, as the frameworks do.
    """
    if not letters:
        return Readings(None, None, None, None)
    said = without_thoughts(body)
    return Readings(
        last_in_body=last_in_body(letters, body),
        strict=_strict(letters, said),
        flexible=last_bracketed(letters, said),
        first=_first(letters, _plain(reasoning + "\n" + body)),
    )


def letter_of(letters: str, reading: str) -> str:
    """What somebody read, as a letter if it is one: as in lm-eval's exact_match, case and punctuation don't count."""
    bare = reading.strip().translate(_PUNCTUATION).strip().upper()
    return bare if len(bare) == 1 and bare in letters else reading


def last_in_body(letters: str, body: str) -> str | None:
    """Ours: the letter that the body gives as its answer, without thoughts.

    What follows a model's going on with another question is no answer to this one.
    """
    said = without_thoughts(body)
    for part in phrases.RUN_ON.split(_plain(said)):
        reading = _answer(letters, part, explicit=end_unknown(body))
        if reading.letter is not None or reading.is_split:
            return reading.letter
    return None


class _Reading(NamedTuple):
    letter: str | None
    is_split: bool = False  # several answers are given, which contradict one another


def _answer(letters: str, text: str, *, explicit: bool) -> _Reading:
    """What a text without a second question answers, by the first of these kinds that it has.

    First an announcement, a letter that has a line of its own, one that is ticked, or one in weaker words. Then what is
    said to be correct, a letter in front of its option's text, and what is named as an option. Where a kind names
    several letters, it is none. `explicit`: the last two don't count.
    """
    text = _unsupposed(text)
    if phrases.UNDECIDED.search(text):
        return _Reading(None, is_split=True)
    said = announced(letters, text)
    doubtful = bool(said.answers)
    if said.answers:
        last = said.answers[-1]
        if last.letter is not None:
            return _Reading(None, is_split=True) if _contradicts(text, said.answers) else _Reading(last.letter)
        text = text[last.end :] if last.named else text[last.end :].partition("\n")[2]
        said = announced(letters, text)
    lines = {found.group(1).upper() for found in _line(letters).finditer(text)}
    kinds: list[Set[str | None]] = [lines, _ticked(letters, text), said.only_named, said.correct]
    if not explicit:
        kinds += [_labels(letters, text), _options(letters, text)]
    named = next((kind for kind in kinds if kind), frozenset())
    letter = next(iter(named)) if len(named) == 1 else None
    return _Reading(letter, is_split=letter is None and doubtful)


def _contradicts(text: str, answers: Sequence[Announcement]) -> bool:
    """Whether an earlier announcement says otherwise than the last one, which neither corrects nor outweighs it."""
    last = answers[-1]
    others = [each for each in answers if each.letter not in (None, last.letter)]
    if not others or phrases.CORRECTED.search(text, others[-1].end, max(others[-1].end, last.end)):
        return False
    return not (_concludes(text, last) and not any(_concludes(text, each) for each in others))


def _concludes(text: str, said: Announcement) -> bool:
    return phrases.CONCLUDES.search(clause(text, said.at) + text[said.at : said.end]) is not None


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
    edge = r"[ \t\"'()\[\]{}<>.:,!#>=→⇒∴-]"
    name = r"(?:(?:option|choice|선택지|보기|选项)\s[\"'(\[]?)?"
    return re.compile(rf"(?mi)^{edge}*{name}([{letters}]){edge}*(?:(?:번\s?)?(?:입니다|이다|임)|번)?\.?[ \t]*$")


def _ticked(letters: str, text: str) -> set[str]:
    """The letters that a JSON object or the rows of a table mark as right."""
    rows = rf"""["']([{letters}])["']\s?:\s?true\b|(?m:^)\|\s{{0,9}}\(?([{letters}])\b[^\n]{{0,400}}[✓✔✅☑]"""
    return {found[1] or found[2] for found in re.finditer(rows, text)}


@cache
def _label(letters: str) -> re.Pattern[str]:
    """`C) 42 kJ/mol`, `(C) 42 kJ/mol`, `C: 42`, `Option C - 42`, `C, because ...`; the roman number `I.` is none."""
    end = r"(?:[).:\]](?!\w)|\s-\s|,\s+(?=because|since|as\b))"
    name = rf"(?:(?i:option|choice)\s)?(?:[(\[]([{letters}])[)\]]|([{letters}]){end}|([{letters.lower()}])\)(?!\w))"
    verb = (
        r"(?:is|are|was|has|have|does|do|can|cannot|can't|would|could|will|says?|seems?|ignores?|violates?|gives?|fails?|"
        r"contradicts?|implies|requires?|describes?|assumes?|and|or|to|vs)\b"
    )
    concluding = r"(?:(?:(?i:so|hence|thus|therefore|answer|result)\s?[:,-]|[→⇒])\s{0,3})?"
    return re.compile(rf"[ \t#>-]{{0,8}}{concluding}{name}[ \t:-]{{0,3}}(?!{verb}|[가이은는을를]\s)(?=[^\s|])")


def _labels(letters: str, text: str) -> set[str]:
    """The letter in front of an option's text on the first or the last line, if no other line has another letter."""
    lines = [line for line in text.splitlines() if line.strip()]
    found = {number: label for number, line in enumerate(lines) if (label := _label(letters).match(line))}
    if len(lines) > 1:  # a) of several lines is one of a list
        found = {number: label for number, label in found.items() if label[3] is None}
    named = {str(label[1] or label[2] or label[3]).upper() for label in found.values()}
    at_an_end = [number for number in found if number in (0, len(lines) - 1)]
    if len(named) != 1 or not at_an_end:
        return set()
    line, label = lines[at_an_end[0]], found[at_an_end[0]]
    is_its_text = len(lines) == 1 and label[0][-1].isspace()  # an option may say "not"
    if not is_its_text and phrases.DENIES.search(line):
        return set()
    return named if named != {"I"} or len(lines) == 1 else set()


def _options(letters: str, text: str) -> frozenset[str]:
    """The options that are named, `(X)` or `option X`, if no sentence that names one denies anything."""
    found: set[str] = set()
    for start, end in _sentences(text):
        sentence = text[start:end]
        named = {each.group(1) or each.group(2) for each in _option(letters).finditer(sentence)}
        if named and phrases.DENIES.search(sentence):
            return frozenset()
        found |= named
    return frozenset(found)


@cache
def _option(letters: str) -> re.Pattern[str]:
    """An option in a sentence: no argument of a function, as in P(A)."""
    word = r"(?i:option|choice|answer)\s{1,3}"
    return re.compile(rf"(?<![\w\\])(?:\(\s{{0,3}}(?:{word})?([{letters}])\s{{0,3}}\)|{word}([{letters}])(?![\w'-]))")


def _plain(text: str) -> str:
    """Full-width and curly characters as usual ones; markdown, special tokens and LaTeX's wrappings of text gone."""
    flat = unicodedata.normalize("NFKC", text).translate(_TYPOGRAPHY)
    flat = phrases.SPECIAL.sub("\n", phrases.TURN_ENDS.sub("\n\f\n", flat))
    flat = _BLANK_LINES.sub("\n\n", _EMPHASIS.sub("", flat.replace("<br>", "\n")))
    for _ in range(MOST_WRAPPERS):
        flat, taken_off = _LATEX_WRAPPER.subn(r"\1", flat)
        if not taken_off:
            break
    return flat


def _unsupposed(text: str) -> str:
    """The text with questions, and what is only supposed, blanked out; every other character keeps its place."""
    parts, done = [], 0
    for start, end in _sentences(text):
        begin, stop = _supposition(text[start:end])
        parts += [text[done : start + begin], " " * (stop - begin)]
        done = start + stop
    return "".join([*parts, text[done:]])


def _supposition(sentence: str) -> tuple[int, int]:
    """From where to where a sentence asks, or supposes."""
    if sentence.rstrip(" \"')]").endswith("?"):
        return 0, len(sentence)
    if (found := phrases.SUPPOSED.search(sentence)) is None:
        return 0, 0
    but = phrases.BUT.search(sentence, found.end())
    stop = but.start() if but else len(sentence)
    supposed = sentence[found.start() : stop]
    if "would" not in supposed and phrases.CONCLUDED.search(supposed):
        return 0, 0
    return (0 if _CONDITIONED.search(sentence, 0, found.start()) else found.start()), stop


def _sentences(text: str) -> Iterator[tuple[int, int]]:
    """Where each sentence begins and ends; blank lines are none."""
    start = 0
    for found in _SENTENCE_END.finditer(text):
        if found.start() > start:
            yield start, found.start()
        start = found.end()
    yield start, len(text)


def _strict(letters: str, body: str) -> str | None:
    found = STRICT.findall(body)
    return letter_of(letters, found[0].strip()) if found else None


def _first(letters: str, text: str) -> str | None:
    """The first `(X)` or announced letter, whichever comes first."""
    bracket = bracketed(letters).search(text)
    for said in announced(letters, text[: bracket.end()] if bracket else text).answers:
        if said.named is not None:
            return said.named
    return bracket.group(1) if bracket else None
