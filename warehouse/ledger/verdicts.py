"""How far a figure can be trusted, and why no further: the one vocabulary of guards, dataset and report."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import StrEnum
from typing import Literal, NamedTuple, get_args

Severity = Literal["suspect", "rejected"]
"""How bad a finding is. Suspect needs a look; rejected can't be true or can't be used."""

Verdict = Literal["ok", "suspect", "rejected"]
"""A row's verdict: the worst severity found, else ok. Only ok rows enter comparisons."""

VERDICTS: tuple[Verdict, ...] = get_args(Verdict)  # all verdicts, the worst last


class Reason(StrEnum):
    """Reason codes. Rows keep them for ever: codes are added, never renamed."""

    DEAD_DRAFT = "dead_draft"  # the technique drafts, and (almost) nothing it drafts is accepted
    ACCEPTANCE_OUT_OF_RANGE = "acceptance_out_of_range"  # more accepted than drafted, or than at the position before
    REPLAY_MISSED = "replay_missed"  # an acceptance to be replayed was another one: the row's label is not true
    SHORT_OUTPUT = "short_output"  # fewer tokens than a fixed-length request asked for
    TOKEN_MISMATCH = "token_mismatch"  # client and engine counted different numbers of tokens for the same work
    NO_ENGINE_COUNTERS = "no_engine_counters"  # the engine's counters could not be read: nothing checks the client's
    PREFIX_CACHE_HIT = "prefix_cache_hit"  # prompts were answered from the prefix cache
    ENGINE_PREEMPTION = "engine_preemption"  # the engine ran out of KV memory and computed requests twice
    STREAM_MISMATCH = "stream_mismatch"  # the streamed token rate is not the rate of the same work without streaming
    STREAM_BURST = "stream_burst"  # the stream came in one burst, so it says nothing about TPOT
    # first chunks had more than the one token of a prefill, or came late: TTFT and prefill speed hold decoding
    LATE_FIRST_TOKEN = "late_first_token"
    CLOCK_MISMATCH = "clock_mismatch"  # requests took the client less time than the engine: one of the clocks is wrong
    LOOPING_TEXT = "looping_text"  # the output repeats itself: its speed and acceptance are those of a loop
    BLANK_OUTPUT = "blank_output"  # answers without a body
    TRUNCATED = "truncated"  # answers cut off by the length limit before they ended
    AT_CHANCE = "at_chance"  # a score that guessing could have reached
    EXTRACTORS_DISAGREE = "extractors_disagree"  # the answer read elsewhere gives another score: a diagnostic
    UNREADABLE_ANSWERS = "unreadable_answers"  # answers in which no reader finds an answer
    NO_THINKING = "no_thinking"  # thinking was asked for, and no answer has any: none was done, or it was graded
    TRUNCATION_DIFFERS = "truncation_differs"  # more, or fewer, answers cut off than AR's: one of them rambles
    ARGV_DIFFERS = "argv_differs"  # speed and accuracy of the cell were not measured on equally started engines
    IMPOSSIBLE_SPEED = "impossible_speed"  # faster than the memory bandwidth of the machine allows
    SPEEDUP_ABOVE_ACCEPTANCE = "speedup_above_acceptance"  # a speculative cell gains more than it commits per step
    NO_GREEDY = "no_greedy"  # the technique has no greedy decoding, so outputs can't be compared token for token
    PARITY_NOT_A_TIE = "parity_not_a_tie"  # greedy outputs parted where the model was sure: no rounding explains that
    NO_BASELINE = "no_baseline"  # the run has no measured AR cell to compare with
    NO_CONTROL = "no_control"  # the control ran on another machine: a pair is made within a machine, never across
    UNSTEADY = "unsteady"  # repeats differ too much, or the most repeats allowed could not settle the rate
    MIXED_MACHINES = "mixed_machines"  # windows of several machines, or of an unrecorded one, are behind one figure
    OTHER_GPU = "other_gpu"  # the card is not the one that was planned
    TOO_SLOW = "too_slow"  # far below what the memory bandwidth of the machine gives: something else was measured
    BASELINE_DRAFTS = "baseline_drafts"  # an AR cell whose engine drafts
    COUNTERS_VANISHED = "counters_vanished"  # the engine lacks a counter that a guard needs: absent is not zero
    CLIENT_DIFFERS = "client_differs"  # cell and AR, or starts of one figure, were timed by different clients
    CLIENT_STARVED = "client_starved"  # the client got no processor when it needed one: the clock measured this machine
    CLIENT_LIMITED = "client_limited"  # fewer requests in flight than asked for, or sent late: the client set the rate
    OVERLOADED = "overloaded"  # more and more requests in flight of a schedule: a fact of the row, no fault
    REQUEST_FAILED = "request_failed"  # requests got an error or a cut-off answer: what the others show is another load
    THROTTLED = "throttled"  # protection against heat, or a power brake, held a card's clock down meanwhile
    LOG_UNREAD = "log_unread"  # the engine's log lacks lines that figures are read from: they are null
    ACCEPTANCE_MISMATCH = "acceptance_mismatch"  # requests' drafts aren't the counters', or more accepted than written
    GIBBERISH = "gibberish"  # text that no reader would take for language, or that its own model finds improbable
    FAILED_SANITY = "failed_sanity"  # questions that no working model misses were missed
    SERVING_DIFFERS = "serving_differs"  # cell and AR, or starts of one figure, were served differently
    PROMPT_LENGTH = "prompt_length"  # the prompts that were sent are not as long as the condition says
    PARITY_FAILED = "parity_failed"  # claims to be lossless, and its greedy outputs leave AR's where AR repeats itself
    PLACEBO_FAILED = "placebo_failed"  # AR against AR read as a difference in this run: its speed claims are withheld
    NO_PLACEBO = "no_placebo"  # AR could not be held against AR under this condition, so speed claims are withheld
    SAME_EXPERTS = "same_experts"  # of an MoE with dummy weights: tokens of a step share experts as real ones don't
    DROPPED = "dropped"  # not started again: its K was out after its first start (`drop: after_first_visit`)
    CUT_SHORT = "cut_short"  # a start that was left unfinished, and measured again on another machine
    NOT_MEASURED = "not_measured"  # its control was measured, the cell was not: rejected before, lost, or still to come
    UNLIKE_ITS_LABEL = "unlike_its_label"  # the engine loaded weights in another format than the cell's precision


def worst(verdicts: Iterable[Verdict]) -> Verdict:
    """The worst of them; ok if there is none. ValueError: a word that is no verdict."""
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
