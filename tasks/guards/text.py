"""Guards over what the model wrote: loops."""

from __future__ import annotations

from collections.abc import Sequence

from tasks.guards.finding import Finding
from warehouse.verdicts import Reason, Severity

LOOP_NGRAM = 4
"""Words in a row that must repeat together to count."""

LOOP_SUSPECT_SHARE = 0.5
"""Share of repeated 4-grams from which an output is suspect."""

LOOP_REJECTED_SHARE = 0.8
"""Share from which it is one loop. Prose of this length stays below 0.1; a cycle of 56 words in 256 reaches 0.78."""


def loop_share(text: str) -> float | None:
    """Share of the text's 4-grams of words that occurred before, 0 to 1; None for fewer than two 4-grams."""
    words = text.split()
    grams = [tuple(words[i : i + LOOP_NGRAM]) for i in range(len(words) - LOOP_NGRAM + 1)]
    return None if len(grams) < 2 else 1 - len(set(grams)) / len(grams)


def looping_text(shares: Sequence[float | None]) -> Finding | None:
    """The mean output of a condition must not be a loop: loops have high acceptance and mean nothing."""
    known = [share for share in shares if share is not None]
    if not known:
        return None
    mean = sum(known) / len(known)
    if mean < LOOP_SUSPECT_SHARE:
        return None
    severity: Severity = "rejected" if mean >= LOOP_REJECTED_SHARE else "suspect"
    return Finding(Reason.LOOPING_TEXT, severity, f"{mean:.0%} of the output's {LOOP_NGRAM}-grams repeat earlier ones")
