"""Guards over what was counted: did the timed work really happen, once, and all of it; does only the draft draft?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from math import sqrt
from statistics import fmean
from typing import Any

from configs.cell import Serving, Technique
from configs.without_weights import ReplayedAcceptance
from tasks.meters import NAMES, Counters
from warehouse.ledger.verdicts import Finding, Reason, Severity

SEEN_SHARE = 1 / 3
"""Of its first time to the first token, what a prompt that is asked again takes at the least where nothing is cached. A
healthy engine takes as long again; a cached prompt of some thousand tokens a tenth."""

FEWEST_SEEN = 8  # prompts to be asked twice: fewer may all have met a compiler, or a busy machine, the first time


def short_output(asked_tokens: int, completion_tokens: Sequence[int]) -> Finding | None:
    """A fixed-length request must return exactly as many tokens as it asked for."""
    off = [tokens for tokens in completion_tokens if tokens != asked_tokens]
    if not off:
        return None
    sentence = f"{len(off)} of {len(completion_tokens)} outputs have not {asked_tokens} tokens (e.g. {off[0]})"
    return Finding(Reason.SHORT_OUTPUT, "rejected", sentence)


def failed_requests(windows: Sequence[Mapping[str, Any]]) -> Finding | None:
    """Every request of a window must be answered, whole: one that failed left its slot to others."""
    failed = sum(row.get("failed") or 0 for row in windows)
    if not failed:
        return None
    first = next(row["first_failure"] for row in windows if row.get("failed"))
    asked = sum(row["requests"] for row in windows)
    return Finding(Reason.REQUEST_FAILED, "rejected", f"{failed} of {asked} requests failed: {first}")


def token_mismatch(client_tokens: int, counted: Counters) -> Finding | None:
    """Over the same requests, tokens by usage must equal tokens by the engine's counter."""
    if counted.generation_tokens is None:
        return Finding(Reason.NO_ENGINE_COUNTERS, "suspect", "the engine shows no vllm:generation_tokens_total")
    if counted.generation_tokens == client_tokens:
        return None
    sentence = f"usage says {client_tokens} tokens, the engine counted {counted.generation_tokens:.0f}"
    return Finding(Reason.TOKEN_MISMATCH, "rejected", sentence)


def ids_mismatch(requests: Sequence[Mapping[str, Any]]) -> Finding | None:
    """An answer that was asked for its token ids has as many as its usage says."""
    asked = [row for row in requests if row.get("token_id_count") is not None]
    told = [(row["token_id_count"], row["completion_tokens"]) for row in asked]
    off = [(ids, tokens) for ids, tokens in told if ids != tokens]
    if not off:
        return None
    example = f"{off[0][0]} ids where usage says {off[0][1]} tokens"
    sentence = f"{len(off)} of {len(told)} answers have another number of token ids than of tokens (e.g. {example})"
    return Finding(Reason.TOKEN_MISMATCH, "rejected", sentence)


def prefix_cache_hit(counted: Counters, serving: Serving) -> Finding | None:
    """With prompts from the cache, a speed is not that of this cell. That its cache is on is no excuse, but a cause."""
    if not counted.prefix_hits:
        return None
    cause = ": serving.prefix_cache is true, speeds need false" if serving.prefix_cache else ""
    sentence = f"{counted.prefix_hits:.0f} prompt tokens came from the prefix cache{cause}"
    return Finding(Reason.PREFIX_CACHE_HIT, "rejected", sentence)


def secretly_cached(seen: Sequence[tuple[float, float]]) -> Finding | None:
    """A prompt that is asked again must not come faster: counters of the cache may say nothing, the clock does.

    `seen`: of each prompt, ms to the first token when it was first asked, and when it was asked again at once. Whatever
    keeps an engine waiting only adds to its times, so the shortest of each are compared.
    """
    if len(seen) < FEWEST_SEEN:
        return None
    first_ms, again_ms = (min(times) for times in zip(*seen, strict=True))
    if again_ms >= SEEN_SHARE * first_ms:
        return None
    sentence = (
        f"{len(seen)} new prompts took {first_ms:.0f} ms to the first token, and {again_ms:.0f} ms when each was asked "
        "again (the shortest times): the engine keeps prompts, whatever it counts"
    )
    return Finding(Reason.PREFIX_CACHE_HIT, "suspect", sentence)


def engine_preemption(counted: Counters) -> Finding | None:
    """Preempted requests are computed twice: the figure is true, but not this cell's speed."""
    if not counted.preemptions:
        return None
    return Finding(Reason.ENGINE_PREEMPTION, "suspect", f"the engine preempted {counted.preemptions:.0f} requests")


def counters_vanished(technique: Technique, counted: Counters) -> Finding | None:
    """Counters that a guard needs must be there; an engine without any is a matter of `token_mismatch`.

    vLLM 0.32.0 shows them from its start, at 0 (`v1/metrics/loggers.py`, `v1/spec_decode/metrics.py`). Those of prefix
    cache and preemptions are always there, also with the cache off; those of drafts wherever it was told to draft.
    """
    if counted.generation_tokens is None:
        return None
    needed = ["prefix_hits", "preemptions"]
    if technique.drafts:
        needed += ["drafts", "draft_tokens", "accepted_tokens"]
    if technique.denoises:
        needed += ["denoising_steps"]
    absent = [NAMES[field][0] for field in needed if getattr(counted, field) is None]
    if not absent:
        return None
    return Finding(Reason.COUNTERS_VANISHED, "suspect", f"the engine shows no {', '.join(absent)}: absent is not zero")


LENGTH_SHARE = 0.01
"""How far from the asked length a prompt may be, at least one token. A speed at "8k" is one at 8 thousand tokens, not
at ten; a tokenizer that can't split a word can't hit every small length."""


def prompt_length(asked: int, sent: Sequence[int]) -> Finding | None:
    """Every prompt of a condition must have as many tokens, by the engine's usage, as the condition says."""
    off = [tokens for tokens in sent if _is_off(asked, tokens)]
    if not off:
        return None
    furthest = max(off, key=lambda tokens: abs(tokens - asked))
    sentence = f"{len(off)} of {len(sent)} prompts have not {asked} tokens within {LENGTH_SHARE:.0%} (e.g. {furthest})"
    return Finding(Reason.PROMPT_LENGTH, "suspect", sentence)


def cut_prompts(requests: Sequence[Mapping[str, Any]]) -> Finding | None:
    """The engine must have read as many tokens, by its usage, as it counted in the prompt before, where it could."""
    told = [row for row in requests if row.get("counted_prompt_tokens") is not None]
    off = [row for row in told if _is_off(row["counted_prompt_tokens"], row["prompt_tokens"])]
    if not off:
        return None
    row = max(off, key=lambda each: abs(int(each["prompt_tokens"]) - int(each["counted_prompt_tokens"])))
    example = f"{row['prompt_tokens']} tokens read of {row['counted_prompt_tokens']}"
    sentence = f"{len(off)} of {len(told)} prompts were read at another length than they have (e.g. {example})"
    return Finding(Reason.PROMPT_LENGTH, "suspect", sentence)


def _is_off(wanted: int, tokens: int) -> bool:
    return abs(tokens - wanted) > max(1, LENGTH_SHARE * wanted)


DEAD_ACCEPTED_PER_DRAFT = 0.1
"""Tokens accepted per drafting step below which a draft is dead. One that guesses among a hundred likely tokens gets
0.01 whatever K is, since nothing after a wrong token is accepted. A living DFlash (K = 15, out of its depth) had
0.28."""

REPLAY_SLACK = 0.1
"""Share by which a replayed acceptance may miss its table, on top of chance. The reason is that the last step of each
request is cut. 2.1 to 2.3 were seen on an H200 where 2.18 had been asked for."""

REPLAY_ERRORS = 4  # standard errors of chance on top: 1 in 16 000 fires for nothing

FEWER = ("num_speculative_tokens_per_batch_size", "enable_adaptive_verification")
"""vLLM's keys of `speculative_config` that let a step draft fewer than K tokens."""


def dead_draft(technique: Technique, counted: Counters) -> Finding | None:
    """The technique drafts, yet (almost) nothing is drafted or accepted, as in vLLM #49559, #49614, #33497, #55605."""
    if not technique.drafts:
        return None
    severity: Severity = "rejected" if technique.facts.is_network else "suspect"
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
    may_draft_fewer = not technique.facts.is_network or any(key in technique.speculative_config for key in FEWER)
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
    counters = (
        ("draft steps", "engine_draft_steps", counted.drafts),
        ("drafted tokens", "engine_draft_tokens", counted.draft_tokens),
        ("accepted tokens", "engine_accepted_tokens", counted.accepted_tokens),
    )
    for name, column, total in counters:
        said = sum(row[column] or 0 for row in requests)
        if total is not None and said != total:
            sentence = f"requests say {said} {name}, the engine counted {total:.0f}"
            return Finding(Reason.ACCEPTANCE_MISMATCH, "rejected", sentence)
    for row in requests if k is not None else ():
        steps, accepted, tokens = row["engine_draft_steps"], row["engine_accepted_tokens"], row["completion_tokens"]
        if steps + accepted > tokens - 1 + (k or 0):
            sentence = f"a request of {tokens} tokens says that {steps} draft steps accepted {accepted}"
            return Finding(Reason.ACCEPTANCE_MISMATCH, "rejected", sentence)
    return None
