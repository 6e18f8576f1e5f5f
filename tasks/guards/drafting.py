"""Guards over speculative decoding: is the draft alive, are its counters possible, and does nobody else draft?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from math import sqrt
from statistics import fmean
from typing import Any

from configs.cell import Technique
from configs.without_weights import ReplayedAcceptance
from tasks.guards.finding import Finding
from tasks.meters import Counters
from warehouse.ledger.verdicts import Reason, Severity

DEAD_ACCEPTED_PER_DRAFT = 0.1
"""Tokens accepted per drafting step below which a draft is dead. One that guesses among a hundred likely tokens gets
0.01 whatever K is, since nothing after a wrong token is accepted. A living DFlash (K = 15, out of its depth) had
0.28."""

REPLAY_SLACK = 0.1
"""Share by which a replayed acceptance may miss its table, on top of chance. The reason is that the last step of each
request is cut. 2.1 to 2.3 were seen on an H200 where 2.18 had been asked for."""

REPLAY_ERRORS = 4
"""Standard errors of chance on top: 1 in 16 000 fires for nothing."""

TRAINED_DRAFTS = ("mtp", "dflash", "draft_model", "eagle", "eagle3")
"""Methods whose draft is a network: idle means broken. n-gram and suffix may rightly find nothing to propose."""

FEWER = ("num_speculative_tokens_per_batch_size", "enable_adaptive_verification")
"""vLLM's keys of `speculative_config` that let a step draft fewer than K tokens."""


def dead_draft(technique: Technique, counted: Counters) -> Finding | None:
    """The technique is speculative, yet (almost) nothing is drafted or accepted.

    A bug that keeps coming back: vLLM #49559, #49614, #33497, #55605.
    """
    if not technique.drafts:
        return None
    severity: Severity = "rejected" if technique.method in TRAINED_DRAFTS else "suspect"
    if counted.drafts is None or counted.accepted_tokens is None:  # vLLM has them whenever it was told to draft
        sentence = f"{technique.name}: the engine counts no drafts, so nothing shows any"
        return Finding(Reason.DEAD_DRAFT, severity, sentence)
    if not counted.drafts:
        sentence = f"{technique.name} drafted nothing at all"
        return None if _may_pause(technique) else Finding(Reason.DEAD_DRAFT, severity, sentence)
    per_draft = counted.accepted_tokens / counted.drafts
    if per_draft >= DEAD_ACCEPTED_PER_DRAFT:
        return None
    sentence = (
        f"{counted.accepted_tokens:.0f} tokens accepted in {counted.drafts:.0f} drafting steps "
        f"({per_draft:.3f} a step, alive from {DEAD_ACCEPTED_PER_DRAFT:g})"
    )
    return Finding(Reason.DEAD_DRAFT, severity, sentence)


def _may_pause(technique: Technique) -> bool:
    """Whether it was told to draft nothing (K = 0) in batches of some sizes (configs/techniques/mtp-dynamic-k.yaml)."""
    ranges = technique.speculative_config.get("num_speculative_tokens_per_batch_size")
    return isinstance(ranges, list | tuple) and any(isinstance(each, list | tuple) and each[-1] == 0 for each in ranges)


def baseline_drafts(technique: Technique, counted: Counters) -> Finding | None:
    """What every technique is compared with must not draft itself: its speedups would be too small, or none."""
    if not technique.is_baseline or not counted.drafts:
        return None
    accepted = counted.accepted_tokens or 0
    sentence = f"an AR cell, and its engine counted {counted.drafts:.0f} drafts with {accepted:.0f} tokens accepted"
    return Finding(Reason.BASELINE_DRAFTS, "rejected", sentence)


def acceptance_out_of_range(k: int | None, counted: Counters) -> Finding | None:
    """No more can be accepted than was drafted, K a step, and no token without those before it."""
    impossible = None
    drafts, drafted, accepted = counted.drafts, counted.draft_tokens, counted.accepted_tokens
    if accepted is not None and drafts is not None and k is not None and accepted > k * drafts:
        impossible = f"{accepted:.0f} tokens accepted in {drafts:.0f} drafting steps of K = {k}"
    elif accepted is not None and drafted is not None and accepted > drafted:
        impossible = f"{accepted:.0f} tokens accepted of {drafted:.0f} drafted"
    elif any(later > earlier for earlier, later in pairwise(counted.accepted_by_position or ())):
        shown = ", ".join(f"{count:.0f}" for count in counted.accepted_by_position or ())
        impossible = f"accepted by position {shown}: more behind a position than at it"
    return None if impossible is None else Finding(Reason.ACCEPTANCE_OUT_OF_RANGE, "rejected", impossible)


def replay_missed(technique: Technique, replayed: ReplayedAcceptance | None, counted: Counters) -> Finding | None:
    """What the engine accepted must be what the row says was replayed.

    That is of K tokens a step, and of as many as it drafted only where the technique may draft fewer. With rates r_i of
    at least i tokens, a step of n drafted ones accepts S(n) = sum(r_1 ... r_n) on average. The mean of their squares is
    at most sum((2i - 1) r_i).
    """
    if replayed is None or not counted.drafts or counted.accepted_tokens is None:
        return None
    may_draft_fewer = technique.method not in TRAINED_DRAFTS or any(
        key in technique.speculative_config for key in FEWER
    )
    drafted = counted.draft_tokens if may_draft_fewer else None
    mean_drafted = len(replayed.rates) if drafted is None else drafted / counted.drafts
    (least, most), seen = _replayed(replayed.rates, mean_drafted), counted.accepted_tokens / counted.drafts
    squares = sum((2 * place - 1) * rate for place, rate in enumerate(replayed.rates, 1))
    chance = REPLAY_ERRORS * sqrt(max(squares - least**2, 0.0) / counted.drafts)
    off, bound = max((least - seen, least), (seen - most, most))
    allowed = REPLAY_SLACK * bound + chance
    if off <= allowed:
        return None
    sentence = f"{seen:.2f} tokens accepted a step, where {replayed.name} has {bound:.2f} (within {allowed:.2f})"
    return Finding(Reason.REPLAY_MISSED, "rejected", sentence)


def _replayed(rates: Sequence[float], mean_drafted: float) -> tuple[float, float]:
    """The least and the most that a step accepts on average; the same where all steps drafted K tokens.

    Only the mean n of what they drafted is known (1 to K; it may vary with the batch or the text). S is concave: most
    is accepted where all steps drafted n, S(n) interpolated; least where each drafted 1 or K.
    """
    k = len(rates)
    n = min(max(mean_drafted, 1.0), float(k))
    most = sum(rate * min(max(n - place, 0.0), 1.0) for place, rate in enumerate(rates))
    return sum(rates) - (k - n) * fmean(rates[1:] or (0.0,)), most


def acceptance_mismatch(k: int | None, requests: Sequence[Mapping[str, Any]], counted: Counters) -> Finding | None:
    """What requests say of their drafts must add up to the engine's counters, and to no more tokens than were written.

    Of T output tokens the first comes from the prefill. Each of S draft steps commits one token and those accepted, A
    in all; other steps commit one. So S + A <= T - 1, plus up to K accepted after the request's end, which vLLM 0.32.0
    counts (`v1/core/sched/scheduler.py`; issue #56101). Sums are compared only where every request says something.
    """
    if not requests or any(row.get("engine_draft_steps") is None for row in requests):
        return None
    sums = {
        "draft steps": (_sum(requests, "engine_draft_steps"), counted.drafts),
        "drafted tokens": (_sum(requests, "engine_draft_tokens"), counted.draft_tokens),
        "accepted tokens": (_sum(requests, "engine_accepted_tokens"), counted.accepted_tokens),
    }
    for name, (said, total) in sums.items():
        if total is not None and said != total:
            sentence = f"requests say {said} {name}, the engine counted {total:.0f}"
            return Finding(Reason.ACCEPTANCE_MISMATCH, "rejected", sentence)
    for row in requests if k is not None else ():
        steps, accepted, tokens = row["engine_draft_steps"], row["engine_accepted_tokens"], row["completion_tokens"]
        if steps + accepted > tokens - 1 + (k or 0):
            sentence = f"a request of {tokens} tokens says that {steps} draft steps accepted {accepted}"
            return Finding(Reason.ACCEPTANCE_MISMATCH, "rejected", sentence)
    return None


def _sum(rows: Sequence[Mapping[str, Any]], column: str) -> int:
    return sum(row[column] or 0 for row in rows)
