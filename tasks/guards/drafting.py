"""Guards over speculative decoding: is the draft alive, and are its counters possible?"""

from __future__ import annotations

from configs.cell import Technique
from tasks.guards.finding import Finding
from tasks.meters import Counters
from warehouse.verdicts import Reason, Severity

DEAD_ACCEPTANCE_RATE = 0.02
"""Accepted share of drafted tokens below which a trained draft is dead. A draft that guesses among a hundred
likely tokens reaches 0.01; the worst living draft that we know from the literature is above 0.1."""

TRAINED_DRAFTS = ("mtp", "dflash", "draft_model", "eagle3")
"""Methods whose draft is a network: idle means broken. n-gram and suffix may rightly find nothing to propose."""


def dead_draft(technique: Technique, counted: Counters) -> Finding | None:
    """The technique is speculative, yet (almost) nothing is drafted or accepted.

    A bug that keeps coming back: vLLM #49559, #49614, #33497, #55605.
    """
    if not technique.drafts:
        return None
    severity: Severity = "rejected" if technique.method in TRAINED_DRAFTS else "suspect"
    if not counted.drafts or not counted.draft_tokens:
        return Finding(Reason.DEAD_DRAFT, severity, f"{technique.name} drafted nothing at all")
    rate = (counted.accepted_tokens or 0.0) / counted.draft_tokens
    if rate >= DEAD_ACCEPTANCE_RATE:
        return None
    sentence = (
        f"{counted.accepted_tokens or 0:.0f} of {counted.draft_tokens:.0f} drafted tokens were accepted "
        f"({rate:.1%}, alive from {DEAD_ACCEPTANCE_RATE:.0%})"
    )
    return Finding(Reason.DEAD_DRAFT, severity, sentence)


def acceptance_out_of_range(k: int | None, counted: Counters) -> Finding | None:
    """Acceptance length must lie within 1 ... K + 1; nothing is checked if it or K is unknown."""
    length = counted.acceptance_length
    if length is None or k is None or 1 <= length <= k + 1:
        return None
    sentence = f"acceptance length {length:.2f} with K = {k} lies outside 1 ... {k + 1}"
    return Finding(Reason.ACCEPTANCE_OUT_OF_RANGE, "rejected", sentence)
