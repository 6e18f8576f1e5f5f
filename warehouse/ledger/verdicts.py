"""How far a figure can be trusted, and why no further: the one vocabulary of guards, dataset and report.

A guard says a `Finding`; what all guards say of a row is its `Judgement`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import StrEnum
from typing import Literal, NamedTuple, get_args

Severity = Literal["suspect", "rejected"]
"""How bad a finding is. Suspect needs a look; rejected can't be true or can't be used."""

Verdict = Literal["ok", "suspect", "rejected"]
"""A row's verdict: the worst severity found, else ok. Only ok rows enter comparisons."""

VERDICTS: tuple[Verdict, ...] = get_args(Verdict)
"""All verdicts, the worst last."""


class Reason(StrEnum):
    """Reason codes. Rows keep them for ever: codes are added, never renamed."""

    DEAD_DRAFT = "dead_draft"
    """The technique drafts, and (almost) nothing it drafts is accepted."""
    ACCEPTANCE_OUT_OF_RANGE = "acceptance_out_of_range"
    """More tokens accepted than were drafted, or at a position than at the one before it."""
    REPLAY_MISSED = "replay_missed"
    """An acceptance that should have been replayed was another one: the row's label is not true."""
    SHORT_OUTPUT = "short_output"
    """Fewer tokens than a fixed-length request asked for."""
    TOKEN_MISMATCH = "token_mismatch"
    """Client and engine counted different numbers of tokens for the same work."""
    NO_ENGINE_COUNTERS = "no_engine_counters"
    """The engine's own counters could not be read, so nothing checks the client's."""
    PREFIX_CACHE_HIT = "prefix_cache_hit"
    """Prompts were answered from the prefix cache."""
    ENGINE_PREEMPTION = "engine_preemption"
    """The engine ran out of KV memory and computed requests twice."""
    STREAM_MISMATCH = "stream_mismatch"
    """The streamed token rate is not the rate of the same work without streaming."""
    STREAM_BURST = "stream_burst"
    """The stream came in one burst, so it says nothing about TPOT."""
    LATE_FIRST_TOKEN = "late_first_token"
    """A prefill makes one token, and first chunks had more, or the engine had made it long before: time to first token
    and prefill speed hold decoding."""
    CLOCK_MISMATCH = "clock_mismatch"
    """The client timed requests as shorter than the engine did, inside of them: one of the two clocks is wrong."""
    LOOPING_TEXT = "looping_text"
    """The output repeats itself: its speed and acceptance are those of a loop."""
    BLANK_OUTPUT = "blank_output"
    """Answers without a body."""
    TRUNCATED = "truncated"
    """Answers cut off by the length limit before they ended."""
    AT_CHANCE = "at_chance"
    """A score that guessing could have reached."""
    EXTRACTORS_DISAGREE = "extractors_disagree"
    """The answer read at another place gives another score: diagnostic, not a result."""
    UNREADABLE_ANSWERS = "unreadable_answers"
    """Answers in which no reader finds an answer."""
    TRUNCATION_DIFFERS = "truncation_differs"
    """More, or fewer, answers were cut off than in the AR cell: one of them rambles."""
    ARGV_DIFFERS = "argv_differs"
    """Speed and accuracy of the cell were not measured on equally started engines."""
    IMPOSSIBLE_SPEED = "impossible_speed"
    """Faster than the memory bandwidth of the machine allows."""
    SPEEDUP_ABOVE_ACCEPTANCE = "speedup_above_acceptance"
    """A speculative cell gains more than it commits per step."""
    NO_GREEDY = "no_greedy"
    """The technique has no greedy decoding, so outputs can't be compared token for token."""
    PARITY_NOT_A_TIE = "parity_not_a_tie"
    """Greedy outputs parted where the model was sure of its next token: no rounding explains that."""
    NO_BASELINE = "no_baseline"
    """The run has no measured AR cell to compare with."""
    NO_CONTROL = "no_control"
    """The control was measured on another machine than the cell: a pair is made within a machine, never across."""
    UNSTEADY = "unsteady"
    """Repeats differ too much, or the most repeats allowed could not settle the rate."""
    MIXED_MACHINES = "mixed_machines"
    """Windows of several machines, or of one that nobody recorded, are behind one figure."""
    OTHER_GPU = "other_gpu"
    """The card is not the one that was planned."""
    TOO_SLOW = "too_slow"
    """Far below what the memory bandwidth of the machine gives: something else was measured."""
    BASELINE_DRAFTS = "baseline_drafts"
    """An AR cell whose engine drafts."""
    COUNTERS_VANISHED = "counters_vanished"
    """The engine has no counter under a name that a guard needs: absent is not zero."""
    CLIENT_DIFFERS = "client_differs"
    """The cell and the AR cell that it is held against, or visits of one figure, were timed by different clients."""
    CLIENT_STARVED = "client_starved"
    """The client got no processor time when it needed some: the clock measured this machine, not the engine."""
    CLIENT_LIMITED = "client_limited"
    """Fewer requests were in flight than asked for, or sent later than scheduled: the client set the rate."""
    OVERLOADED = "overloaded"
    """More and more requests were in flight of a schedule: the engine can't follow it. A fact of the row, no fault."""
    REQUEST_FAILED = "request_failed"
    """Requests got an error, or an answer that was cut off on its way: what the others show is another load."""
    THROTTLED = "throttled"
    """A card's protection against heat, its driver's or its own, or a power brake held its clock down meanwhile."""
    LOG_UNREAD = "log_unread"
    """The engine's log lacks lines that figures are read from: they are null, for its words may have changed."""
    ACCEPTANCE_MISMATCH = "acceptance_mismatch"
    """Drafts by request and by the engine's counters differ, or a request accepted more than it wrote."""
    GIBBERISH = "gibberish"
    """Text that no reader would take for language, or that its own model finds improbable."""
    FAILED_SANITY = "failed_sanity"
    """Questions that no working model misses were missed."""
    SERVING_DIFFERS = "serving_differs"
    """The cell and the AR cell that it is held against, or visits of one figure, were served differently."""
    PROMPT_LENGTH = "prompt_length"
    """The prompts that were sent are not as long as the condition says."""
    PARITY_FAILED = "parity_failed"
    """Lossless by its own claim, yet its greedy outputs leave AR's where AR repeats itself."""
    PLACEBO_FAILED = "placebo_failed"
    """AR against AR read as a difference in this run, so its speed claims are withheld."""
    NO_PLACEBO = "no_placebo"
    """AR could not be held against AR under this condition, so speed claims are withheld."""
    SAME_EXPERTS = "same_experts"
    """The tokens of a step of an MoE's dummy weights, which write one token: they share experts as real ones don't."""
    DROPPED = "dropped"
    """Not visited again: its K was out after its first visit, and the sweep says so (`drop: after_first_visit`)."""
    CUT_SHORT = "cut_short"
    """A visit that was left unfinished, and measured again on another machine."""
    NOT_MEASURED = "not_measured"
    """A cell whose control was measured and which itself was not: rejected before, lost, or still to come."""


def worst(verdicts: Iterable[Verdict]) -> Verdict:
    """The worst of them; ok if there is none.

    Raises:
        ValueError: a word that is no verdict.
    """
    return max(verdicts, key=VERDICTS.index, default="ok")


class Finding(NamedTuple):
    """One thing found: a code, how bad it is, and a sentence with the figures."""

    reason: Reason
    severity: Severity
    sentence: str


class Judgement(NamedTuple):
    """What the guards say about one condition of a step; `condition` and `mode` are None for the whole step."""

    condition: str | None
    mode: str | None
    findings: tuple[Finding, ...]

    @property
    def verdict(self) -> Verdict:
        """The worst severity found; ok if nothing was."""
        return worst(finding.severity for finding in self.findings)

    def as_row(self) -> dict[str, object]:
        """As a row of `verdicts`."""
        reasons, details = [each.reason.value for each in self.findings], [each.sentence for each in self.findings]
        of = {"condition": self.condition, "mode": self.mode, "verdict": self.verdict}
        return {**of, "reasons": reasons, "details": details}


def judge(condition: str | None, mode: str | None, findings: Sequence[Finding | None]) -> Judgement:
    """Gather what guards returned; a guard that found nothing returns None."""
    return Judgement(condition, mode, tuple(finding for finding in findings if finding is not None))
