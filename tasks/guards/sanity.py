"""Guards over questions that no working model misses.

An answer that was cut off is unknown, not wrong: a model that thinks long is not broken.
"""

from __future__ import annotations

from collections.abc import Sequence

from tasks.guards.finding import Finding
from warehouse.parts import Row
from warehouse.verdicts import Reason, Severity

ENGLISH_NEEDED = 2
"""Of the four English questions. A working model that misses each with 2 % (binomially) has three wrong once in 32 000
cells; noise, echoes and broken weights have all wrong."""

ALL_NEEDED = 4
"""Of all ten: a model that knows English alone has its four, and is suspect."""

SUSPECT_FROM_WRONG = 2
"""A model that misses each question with 2 % has two or more wrong of ten in 1.6 % of cells: worth a look at the
answers, no reason to stop."""

MOST_CUT_OFF = 3
"""Of ten; with more of them unknown the rest says little."""

FAMILY_NEEDED = 7
"""Of ten taught questions, which have no room for thinking. A model that guesses the demo family's four letters has 7
or more once in 285."""

SHOWN_CHARS = 40
"""Of a wrong answer, in the sentence."""


def failed_sanity(answers: Sequence[Row]) -> Finding | None:
    """What ended by itself must be right; the sentence names what was not.

    Args:
        answers: rows of `sanity`: of the general questions, or of what a member of the demo family was taught.
    """
    english = [row for row in answers if row["language"] == "en"]
    missed = [row for row in answers if not row["is_right"] and (_ended(row) or not english)]
    if english:
        wrong_english = sum(row["language"] == "en" for row in missed)
        # cut off is unknown: a cell is rejected only where no answer of those could save it
        rejected = len(english) - wrong_english < ENGLISH_NEEDED or len(answers) - len(missed) < ALL_NEEDED
    else:
        rejected = len(answers) - len(missed) < FAMILY_NEEDED
    if len(missed) < SUSPECT_FROM_WRONG and not rejected:
        return None
    severity: Severity = "rejected" if rejected else "suspect"
    right = sum(bool(row["is_right"]) for row in answers)
    said = ", ".join(f"{row['question_id']} ({_said(row)})" for row in missed)
    return Finding(
        Reason.FAILED_SANITY, severity, f"{right} of {len(answers)} sanity questions right, {len(missed)} wrong: {said}"
    )


def cut_off_sanity(answers: Sequence[Row]) -> Finding | None:
    """Most answers must end by themselves: of those that don't, nobody knows whether they would have been right.

    Args:
        answers: rows of `sanity`.
    """
    cut = [row for row in answers if not _ended(row)]
    if len(cut) <= MOST_CUT_OFF or not any(row["language"] == "en" for row in answers):
        return None
    said = ", ".join(f"{row['question_id']} ({_said(row)})" for row in cut)
    sentence = f"{len(cut)} of {len(answers)} sanity questions unanswered, so nothing is known of them: {said}"
    return Finding(Reason.FAILED_SANITY, "suspect", sentence)


def _ended(row: Row) -> bool:
    return bool(row["finish_reason"] != "length")


def _said(row: Row) -> str:
    if not _ended(row):
        return f"cut off after {row['completion_tokens']} tokens"
    return repr(row["body"].strip()[:SHOWN_CHARS])
