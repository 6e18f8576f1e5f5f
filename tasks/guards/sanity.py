"""Guard over questions that no working model misses."""

from __future__ import annotations

from collections.abc import Sequence

from tasks.guards.finding import Finding
from warehouse.parts import Row
from warehouse.verdicts import Reason, Severity

SANITY_REJECTED_BELOW = 7
"""Right answers of ten. A working model that misses each question with 2 % (binomially) has fewer than 7 right once
in 34 000 cells; one that guesses the demo family's four letters has 7 or more once in 285, any other far less."""

SANITY_SUSPECT_BELOW = 9
"""Such a model misses two or more of ten in 1.6 % of cells: worth a look at the answers, no reason to stop."""

SHOWN_CHARS = 40
"""Of a wrong answer, in the sentence."""


def failed_sanity(answers: Sequence[Row]) -> Finding | None:
    """Nearly all questions must be answered rightly; the sentence names those that were not.

    Args:
        answers: rows of `sanity`.
    """
    missed = [row for row in answers if not row["is_right"]]
    right = len(answers) - len(missed)
    if right >= SANITY_SUSPECT_BELOW:
        return None
    severity: Severity = "rejected" if right < SANITY_REJECTED_BELOW else "suspect"
    bound = SANITY_REJECTED_BELOW if severity == "rejected" else SANITY_SUSPECT_BELOW
    said = ", ".join(f"{row['question_id']} ({_said(row)})" for row in missed)
    sentence = f"{right} of {len(answers)} sanity questions right ({severity} below {bound}), missed: {said}"
    return Finding(Reason.FAILED_SANITY, severity, sentence)


def _said(row: Row) -> str:
    if row["finish_reason"] == "length":
        return f"cut off after {row['completion_tokens']} tokens"
    return repr(row["body"].strip()[:SHOWN_CHARS])
