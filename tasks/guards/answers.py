"""Guards over graded answers: were they given at all, to their end, can they be read, and could guessing do as well?

Rows are those of `eval_samples`. Exchanges, where given, are the rows of `exchanges` in the same order: a rejection
then shows the end of the answer that explains it. Of a gated suite it shows only how that answer ended and was read.
The text of such a suite may not be spread, and sentences are kept in the dataset.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from math import exp, fsum, lgamma, log, log1p
from typing import NamedTuple

from configs.cell import Model
from configs.evals.suites import SuiteFacts
from tasks.frameworks.thoughts import has_thoughts
from warehouse.ledger.tables import Row
from warehouse.ledger.verdicts import Finding, Reason, Severity

SMOKE_CHANCE_P = 0.15  # with five items of four choices, 3 right pass (p = 0.10) and 2 do not (p = 0.37)

GATE_CHANCE_P = 0.5
"""For the first few items of an evaluation: no better than guessing usually does. At 0.15 one suite in four would stop
a cell with 65 %; at 0.5 one in 18, and the second few items save most of those."""

EVAL_CHANCE_P = 0.01  # with a whole evaluation a score that guessing reaches one time in a hundred has no excuse


def chance_p(correct: int, n: int, chance: float) -> float:
    """Probability that guessing scores at least `correct` of `n`: P(Bin(n, chance) >= correct)."""
    if correct <= 0:
        return 1.0
    if chance <= 0:
        return 0.0
    hit, miss, whole = log(chance), log1p(-chance), lgamma(n + 1)
    # from logarithms: with thousands of items the binomial coefficients are beyond any float
    terms = (exp(whole - lgamma(i + 1) - lgamma(n - i + 1) + i * hit + (n - i) * miss) for i in range(correct, n + 1))
    return min(1.0, fsum(terms))


def at_chance(correct: int, n: int, chance: float, level: float) -> Finding | None:
    """Guessing must reach a score with a probability of at most `level`."""
    p = chance_p(correct, n, chance)
    if p <= level:
        return None
    sentence = f"{correct} of {n} right: guessing (chance {chance:g}) does as well with p = {p:.2f}"
    return Finding(Reason.AT_CHANCE, "rejected", sentence)


EXCERPT_CHARS = 200  # of an answer's end that a rejection shows: the announcement of an answer, or a thought cut off


class Bounds(NamedTuple):
    """Shares of answers above which an evaluation is suspect, and rejected."""

    suspect: float
    rejected: float


TRUNCATED_BOUNDS = Bounds(0.02, 0.20)
"""2 % cut off move a score by no more than the stderr of the largest suite; with a fifth the limit is the score."""

BLANK_BOUNDS = Bounds(0.01, 0.10)  # blank though not cut off: a stop string in the thinking, say, ended the answer

UNREADABLE_BOUNDS = Bounds(0.05, 0.20)
"""Models do now and then answer with no option; a fifth is a format that our reader doesn't know."""

AGREEMENT_SUSPECT = 0.90  # least share of answers whose last option in brackets is the one that they announce
GATE_AGREEMENT_REJECTED = 0.75  # of five answers one may name other options behind its own; two are to be looked at
NONE_ALLOWED = Bounds(0.0, 0.0)  # among the few answers of the gate one that is cut off or blank stops the cell
ANY_SUSPECT = Bounds(0.0, 1.0)  # one of three that is cut off moves the score by a third, and says nothing about a rate

JUDGED_HERE = frozenset({
    Reason.TRUNCATED, Reason.BLANK_OUTPUT, Reason.UNREADABLE_ANSWERS, Reason.EXTRACTORS_DISAGREE, Reason.AT_CHANCE,
    Reason.NO_THINKING,
})  # fmt: skip
"""What these guards may say; a later grading takes it back and says it anew."""


def step_findings(rows: Sequence[Row], suite: SuiteFacts, exchanges: Sequence[Row] = ()) -> list[Finding]:
    """What a whole evaluation's answers give away; without `exchanges`, one for each row, no rejection shows any."""
    return _findings(_Answers(rows, suite, exchanges), TRUNCATED_BOUNDS, BLANK_BOUNDS, 0.0, EVAL_CHANCE_P)


def gate_findings(rows: Sequence[Row], suite: SuiteFacts, exchanges: Sequence[Row] = ()) -> list[Finding]:
    """What the few answers of the smoke gate give away: none cut off, none blank, readable, and better than guessed."""
    answers = _Answers(rows, suite, exchanges)
    return _findings(answers, NONE_ALLOWED, NONE_ALLOWED, GATE_AGREEMENT_REJECTED, GATE_CHANCE_P)


Judge = Callable[[Sequence[Row], SuiteFacts, Sequence[Row]], list[Finding]]  # `step_findings` or `gate_findings`


def in_full(findings: Judge, rows: Sequence[Row], suite: SuiteFacts, exchanges: Sequence[Row]) -> list[str]:
    """Rejections of a gated suite with the answers' own words; none of other suites, whose sentences have them.

    For a file that stays on the node. Not for its standard output: the last lines of that become `attempts.log_tail`.
    """
    shown = findings(rows, suite._replace(gated=False), exchanges) if suite.gated else []
    return [finding.sentence for finding in shown if finding.severity == "rejected"]


class _Answers(NamedTuple):
    rows: Sequence[Row]
    suite: SuiteFacts
    exchanges: Sequence[Row]

    def where(self, holds: Callable[[Row], bool]) -> list[int]:
        return [index for index, row in enumerate(self.rows) if holds(row)]

    def shown(self, index: int) -> str:
        """The end of an answer, for a sentence that rejects; empty where nobody has it."""
        if not self.exchanges:
            return ""
        if self.suite.gated:
            return f"; {outline(self.rows[index], self.exchanges[index], self.suite.letters)}"
        return f"; {self.rows[index]['item_id']} ends: {excerpt(self.exchanges[index])}"


def _findings(answers: _Answers, cut: Bounds, blank: Bounds, agreement_rejected: float, level: float) -> list[Finding]:
    truncated_ones = answers.where(lambda row: row["truncated"])
    blank_ones = answers.where(lambda row: row["blank"] and not row["truncated"])
    found = [
        _share(answers, truncated_ones, cut, Reason.TRUNCATED, "were cut off by the length limit"),
        _share(answers, blank_ones, blank, Reason.BLANK_OUTPUT, "are blank though not cut off"),
    ]
    if answers.suite.letters:
        unread = answers.where(lambda row: row["last_in_body"] is None and not row["blank"] and not row["truncated"])
        found.append(_share(answers, unread, UNREADABLE_BOUNDS, Reason.UNREADABLE_ANSWERS, "name no answer"))
        found.append(readers_disagree(answers.rows, agreement_rejected, answers.shown))
    found.append(_guessed(answers, level))
    return [finding for finding in found if finding is not None]


def _share(answers: _Answers, concerned: Sequence[int], bounds: Bounds, reason: Reason, what: str) -> Finding | None:
    found = above(bounds, len(concerned), len(answers.rows), reason, what)
    if found is None or found.severity != "rejected":
        return found
    return found._replace(sentence=found.sentence + answers.shown(concerned[0]))


def above(bounds: Bounds, concerned: int, n: int, reason: Reason, what: str) -> Finding | None:
    """A finding where more than the allowed share of `n` answers are `what`."""
    if not concerned or concerned <= bounds.suspect * n:
        return None
    severity: Severity = "rejected" if concerned > bounds.rejected * n else "suspect"
    bound = bounds.rejected if severity == "rejected" else bounds.suspect
    sentence = f"{concerned} of {n} answers {what} ({concerned / n:.1%}, {severity} above {bound:.0%})"
    return Finding(reason, severity, sentence)


def blank_output(bodies: Sequence[str], bounds: Bounds = BLANK_BOUNDS) -> Finding | None:
    """Answers without a body, where one may be blank that was cut off."""
    return above(bounds, sum(not body.strip() for body in bodies), len(bodies), Reason.BLANK_OUTPUT, "are blank")


def truncated(finish_reasons: Sequence[str], bounds: Bounds = TRUNCATED_BOUNDS) -> Finding | None:
    """Answers cut off by the length limit: graded on half a thought."""
    cut = sum(reason == "length" for reason in finish_reasons)
    return above(bounds, cut, len(finish_reasons), Reason.TRUNCATED, "were cut off by the length limit")


def readers_disagree(
    rows: Sequence[Row], rejected_below: float = 0.0, shown: Callable[[int], str] = lambda _: ""
) -> Finding | None:
    """Where an option in brackets is found in an answer that was not cut off, it must be the one that we read.

    It is rejected below a share of agreement of `rejected_below`, and `shown` then has the end of a row's answer.
    """
    both = [index for index, row in enumerate(rows) if row["flexible"] is not None and not row["truncated"]]
    apart = [index for index in both if rows[index]["flexible"] != rows[index]["last_in_body"]]
    agreed = 1 - len(apart) / len(both) if both else 1.0
    if agreed >= AGREEMENT_SUSPECT:
        return None
    severity: Severity = "rejected" if agreed < rejected_below else "suspect"
    row = rows[apart[0]]
    sentence = (
        f"readers find the same letter in {agreed:.0%} of {len(both)} answers ({severity} below "
        f"{rejected_below if severity == 'rejected' else AGREEMENT_SUSPECT:.0%}): {row['item_id']} announces "
        f"{row['last_in_body'] or 'nothing'} and has ({row['flexible']}) last"
    )
    return Finding(Reason.EXTRACTORS_DISAGREE, severity, sentence + (shown(apart[0]) if severity == "rejected" else ""))


def _guessed(answers: _Answers, level: float) -> Finding | None:
    """By items: several answers to one item are no independent guesses. Nobody guesses where answers are no letters."""
    by_item: dict[str, list[bool]] = {}
    for row in answers.rows:
        by_item.setdefault(row["item_id"], []).append(row["correct"])
    correct = int(sum(sum(right) / len(right) for right in by_item.values()))
    found = at_chance(correct, len(by_item), answers.suite.chance or 0.0, level)
    wrong = answers.where(lambda row: not row["correct"])
    if found is None or not wrong:
        return found
    return found._replace(sentence=found.sentence + answers.shown(wrong[0]))


SWITCHES = ("enable_thinking", "thinking")
"""Arguments of chat templates that turn thinking on and off (Qwen, Gemma, GLM; DeepSeek, Granite, Kimi)."""


def asks_for_thinking(model: Model) -> bool:
    """Whether the model's answers must have thoughts: its template is told to think, or it names a parser for them."""
    switches = [model.chat_template_kwargs[name] for name in SWITCHES if name in model.chat_template_kwargs]
    return all(switches) if switches else model.reasoning_parser is not None


def thinks(exchange: Row) -> bool:
    """Whether an answer has thoughts: apart from its body, or in it between marks that are known."""
    return bool((exchange["reasoning"] or "").strip()) or has_thoughts(exchange["body"] or "")


def no_thinking(model: Model, thought: Collection[bool]) -> Finding | None:
    """Of all answers of a step, one at least must have thoughts (`thinks`) where they are asked for.

    Otherwise thoughts in a format that nobody knows may have been graded, or the model answered without any.
    """
    if not thought or any(thought) or not asks_for_thinking(model):
        return None
    parser = model.reasoning_parser or "none"
    sentence = (
        f"thinking is asked for (chat_template_kwargs {model.chat_template_kwargs}, reasoning_parser {parser}), and "
        f"none of {len(thought)} answers has any: name the reasoning_parser that vLLM has for {model.name}, or "
        "turn thinking off with chat_template_kwargs {enable_thinking: false}"
    )
    return Finding(Reason.NO_THINKING, "suspect", sentence)


READINGS = ("last_in_body", "strict", "flexible", "first")  # columns of `eval_samples`: letters by reader


def outline(row: Row, exchange: Row, letters: str) -> str:
    """How an answer ended, how long it was and which letters were read in it; none of its words."""
    ended = exchange.get("finish_reason") or ("length" if row["truncated"] else "nothing")
    found = {name: row.get(name) for name in READINGS}
    # the strict reader takes whatever follows its phrase, which need not be a letter
    shown = {name: each if each in (None, *letters) else "no letter" for name, each in found.items()}
    read = ", ".join(f"{name} {each or 'none'}" for name, each in shown.items())
    tokens = row.get("completion_tokens")
    length = "an unknown number of" if tokens is None else str(tokens)
    return f"{row['item_id']} ended by {ended} after {length} tokens; read: {read}"


def excerpt(exchange: Row) -> str:
    """The last characters of what was said, with the thinking marked as such."""
    body = " ".join((exchange["body"] or "").split())
    thought = " ".join((exchange["reasoning"] or "").split())
    if len(body) >= EXCERPT_CHARS:
        return f"[answer] …{body[-EXCERPT_CHARS:]}"
    rest = EXCERPT_CHARS - len(body)
    thinking = f"[thinking] {'…' if len(thought) > rest else ''}{thought[-rest:]} " if thought else ""
    return f"{thinking}[answer] {body or 'nothing'}"


ENGLISH_NEEDED = 2
"""Of the four English questions. A working model that misses each with 2 % (binomially) has three wrong once in 32 000
cells; noise, echoes and broken weights have all wrong."""

ALL_NEEDED = 4  # of all ten: a model that knows English alone has its four, and is suspect
SUSPECT_FROM_WRONG = 2  # two or more of ten are wrong in 1.6 % of cells of a model that misses each with 2 %
MOST_CUT_OFF = 3  # of ten; with more of them unknown the rest says little

FAMILY_NEEDED = 7
"""Of ten taught questions, which have no room for thinking. A model that guesses the demo family's four letters has 7
or more once in 285."""

SHOWN_CHARS = 40  # of a wrong answer, in the sentence


def failed_sanity(answers: Sequence[Row], *, may_be_cut: bool = True) -> Finding | None:
    """What ended by itself must be right: rows of `sanity`, general questions or what a family's member was taught.

    `may_be_cut`: what was cut off is unknown; of a base model, which never ends, it is what was asked for.
    """
    english = [row for row in answers if row["language"] == "en"]
    unknown_if_cut = may_be_cut and bool(english)
    missed = [row for row in answers if not row["is_right"] and (_ended(row) or not unknown_if_cut)]
    if english:
        wrong_english = sum(row["language"] == "en" for row in missed)
        # cut off is unknown: a cell is rejected only where no answer of those could save it
        rejected = len(english) - wrong_english < ENGLISH_NEEDED or len(answers) - len(missed) < ALL_NEEDED
    else:
        rejected = len(answers) - len(missed) < FAMILY_NEEDED
    if len(missed) < SUSPECT_FROM_WRONG and not rejected:
        return None
    severity: Severity = "rejected" if rejected else "suspect"
    right, said = sum(bool(row["is_right"]) for row in answers), _said(missed, with_cut=not may_be_cut)
    sentence = f"{right} of {len(answers)} sanity questions right, {len(missed)} wrong: {said}"
    return Finding(Reason.FAILED_SANITY, severity, sentence)


def cut_off_sanity(answers: Sequence[Row]) -> Finding | None:
    """Most answers must end by themselves: of those that don't, nobody knows whether they would have been right.

    With some of the questions it says what it says with all of them: no further answer takes it back.
    """
    cut = [row for row in answers if not _ended(row)]
    if len(cut) <= MOST_CUT_OFF or not any(row["language"] == "en" for row in answers):
        return None
    sentence = f"{len(cut)} of {len(answers)} sanity questions unanswered, so nothing is known of them: {_said(cut)}"
    return Finding(Reason.FAILED_SANITY, "suspect", f"{sentence}; a base model? its file says `chat: false` then")


def _ended(row: Row) -> bool:
    return row["finish_reason"] not in ("length", "repetition")


def _said(rows: Sequence[Row], *, with_cut: bool = False) -> str:
    said = []
    for row in rows:
        cut_off = "a loop, ended" if row["finish_reason"] == "repetition" else "cut off"
        body = repr(row["body"].strip()[:SHOWN_CHARS])
        ended = body if with_cut or _ended(row) else f"{cut_off} after {row['completion_tokens']} tokens"
        said.append(f"{row['question_id']} ({ended})")
    return ", ".join(said)
