"""What the guards say about a condition of any timed step: one set of findings, and one verdict made of them.

What only one step knows (a twin, a schedule, two parts of a stream) it adds as findings of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import zip_longest
from math import fsum
from typing import NamedTuple

from configs.cell import Cell, Gpu
from tasks.guards import answers, speed, steadiness, text, tokens
from tasks.meters import NAMES, Counters
from tasks.timing.timed import Row
from warehouse.ledger.formulas import rate_of
from warehouse.ledger.verdicts import Finding, Judgement, judge

SHORTEST_OUTPUT = 1  # tokens of a natural answer for the ceiling: some may be as short, and it stays above the truth


class Work(NamedTuple):
    """What was sent under a condition, and what was asked of it: all that guards hold it to."""

    served: Cell  # what the engine serves: in a control's start the control
    gpu: Gpu  # as planned
    windows: Sequence[Row]
    requests: Sequence[Row]  # those of the windows
    concurrency: int | None  # requests in flight; None: an open loop
    context_tokens: int | None = None  # of each prompt; None: of any length
    output_tokens: int | None = None  # of each answer; None: they end by themselves

    @property
    def counted(self) -> Counters:
        """By the engine, over all windows."""
        return counted_in(self.windows)

    @property
    def in_flight(self) -> float:
        """Requests at a time: as many as were asked for, or the mean of an open loop."""
        seconds = fsum(row["wall_s"] for row in self.windows) or 1.0
        return self.concurrency or fsum(row["wall_s"] for row in self.requests) / seconds

    @property
    def is_real(self) -> bool:
        """Whether what was written means anything."""
        return self.served.model.weights == "real"

    def done(self) -> list[Finding | None]:
        """Was the work behind a speed done: its tokens, its drafts, each prompt computed once?"""
        served, counted = self.served, self.counted
        failed = tokens.failed_requests(self.windows)
        if failed is not None:  # the engine counted work of theirs, too: no sum can hold
            return [failed, self._short()]
        return [
            self._short(),
            tokens.token_mismatch(sum(row["completion_tokens"] for row in self.windows), counted),
            speed.clock_mismatch(self.requests),
            *self._accounts(counted),
            tokens.prefix_cache_hit(counted, served.serving),
            tokens.engine_preemption(counted),
            steadiness.throttled(self.windows),
            steadiness.same_experts(served.model, served.technique, served.k, round(self.in_flight)),
        ]

    def _short(self) -> Finding | None:
        lengths = [row["completion_tokens"] for row in self.requests]
        return None if self.output_tokens is None else tokens.short_output(self.output_tokens, lengths)

    def _accounts(self, counted: Counters) -> list[Finding | None]:
        """Do tokens and drafts add up: none of a dead draft, none of AR's own, none that can't be?"""
        served = self.served
        return [
            tokens.ids_mismatch(self.requests),
            tokens.counters_vanished(served.technique, counted),
            tokens.dead_draft(served.technique, counted),
            tokens.baseline_drafts(served.technique, counted),
            tokens.acceptance_out_of_range(served.most_drafted, counted),
            tokens.replay_missed(served.technique, served.acceptance, counted),
            tokens.acceptance_mismatch(served.most_drafted, self.requests, counted),
        ]

    def answers(self, *, few: bool = False) -> list[Finding | None]:
        """Are the prompts as long as they were sent, and is there sense in the answers? Of a `few` none may be blank.

        Many answers of a fixed length are not asked whether they are blank: what they lack would be in their tokens.
        Made-up weights write nonsense, and are published as made up.
        """
        is_fixed, read = self.output_tokens is not None, [row["prompt_tokens"] for row in self.requests]
        found = [
            None if self.context_tokens is None else tokens.prompt_length(self.context_tokens, read),
            tokens.cut_prompts(self.requests),
        ]
        if not self.is_real:
            return found
        bounds = answers.NONE_ALLOWED if is_fixed else answers.BLANK_BOUNDS
        texts = [row["text"] for row in self.requests]
        blank = answers.blank_output(texts, bounds) if few or not is_fixed else None
        probable = text.improbable_text([row.get("mean_logprob") for row in self.requests])
        return [blank, *found, text.degenerate_text(self.requests), probable]

    def smoke(self, counted: Counters) -> list[Finding | None]:
        """Of a few requests before hours are spent, over which the engine counted so much."""
        mismatch = tokens.token_mismatch(sum(row["completion_tokens"] for row in self.requests), counted)
        return [self._short(), mismatch, *self._accounts(counted), *self.answers(few=True)]

    def lumps(self) -> Finding | None:
        """Did tokens of streams come as they were made? A canvas, or a draft of any length, arrives at once."""
        chunks = [(row["completion_tokens"], row["largest_chunk_tokens"]) for row in self.requests]
        most = 0 if self.served.technique.is_baseline else self.served.most_drafted
        return None if most is None else speed.streamed_in_lumps(chunks, most + 1)

    def late(self) -> list[Finding | None]:
        """Were first tokens of streams seen when they were made?"""
        return [speed.late_first_token(self.served, self.requests), speed.held_back(self.requests)]

    def too_fast(self) -> Finding | None:
        """All windows together, against what the shortest prompt and answer of them let a card do."""
        if not fsum(row["wall_s"] for row in self.windows):
            return None
        written = sum(row["completion_tokens"] for row in self.windows)
        per_step = speed.tokens_per_step(self.served, written, self.counted)
        at_once = self.concurrency or len(self.requests)
        ceiling = speed.ceiling_tok_s(self.served, self.gpu, self._step_bytes(), per_step, at_once)
        return speed.impossible_speed(rate_of(self.windows), ceiling)

    def too_slow(self, decode_tok_s: float) -> Finding | None:
        """A rate of decoding one request, against what every card can do."""
        return speed.too_slow(decode_tok_s, speed.floor_tok_s(self.served, self.gpu, self._step_bytes()))

    def _step_bytes(self) -> float:
        """What a decoding step reads at the least: behind the shortest of the prompts."""
        shortest = min((row["prompt_tokens"] or 0 for row in self.requests), default=0)
        at_once = self.concurrency or len(self.requests)
        return speed.step_bytes(self.served, shortest, self.output_tokens or SHORTEST_OUTPUT, at_once)

    def slow_alone(self) -> Finding | None:
        """Of one request at a time, and of what is no prefill: else a long prompt would look like slow decoding."""
        decoded = [each for row in self.requests if (each := _decoded(row)) is not None]
        if self.concurrency != 1 or not decoded:
            return None
        prompt, answer = (
            max(row[name] or 0 for row in self.requests) for name in ("prompt_tokens", "completion_tokens")
        )
        floor = speed.floor_tok_s(self.served, self.gpu, speed.step_bytes(self.served, prompt, answer, 1))
        return speed.too_slow(fsum(written for written, _ in decoded) / fsum(seconds for _, seconds in decoded), floor)


def _decoded(request: Row) -> tuple[int, float] | None:
    """Tokens and seconds: of a stream those behind its first chunk, else of an answer longer than its prompt."""
    written: int = request["completion_tokens"]
    if request.get("first_chunk_tokens") is None:
        return (written, request["wall_s"]) if written and request["prompt_tokens"] <= written else None
    later = written - request["first_chunk_tokens"]
    return (later, later * request["tpot_ms"] / 1000) if request["tpot_ms"] and later else None


def counted_in(windows: Sequence[Row]) -> Counters:
    """Window rows summed back into counters; None for each that any window lacks."""
    totals: dict[str, float | None] = {"requests_finished": None}
    for field in NAMES.keys() - totals:
        values = [row[f"engine_{field}"] for row in windows]
        totals[field] = None if None in values else float(sum(values))
    positions = [row["engine_accepted_by_position"] for row in windows]
    known = bool(positions) and None not in positions
    summed = tuple(map(float, map(sum, zip_longest(*positions, fillvalue=0)))) if known else None
    return Counters(**totals, accepted_by_position=summed)


class Paces(NamedTuple):
    """How fast each repeat of a condition was, and what that is counted in."""

    each: Sequence[float]
    within: float | None = None  # the half-width that was asked for, as a share; None: a fixed number of repeats
    what: str = "decoding steps/s"


def verdict(
    condition: str,
    mode: str,
    found: Sequence[Finding | None],
    windows: Sequence[Row],
    *,
    paces: Paces | None = None,
    clocks: Sequence[Row] | None = None,
) -> Judgement:
    """The findings but for what a client that waited explains, whether repeats agree, and whether the client kept up.

    `paces` are None where they are no measure of the machine. `clocks` are windows with the seconds by which its client
    was starved or not; None: its windows.
    """
    starved = steadiness.client_starved(windows if clocks is None else clocks)
    steady = None if paces is None else steadiness.unsteady(*paces)
    # what a stream looks like to a client that slept is no fault of the engine's
    kept = [each for each in found if each and (starved is None or each.reason not in steadiness.BURSTS)]
    return judge(condition, mode, [*kept, steady, starved, steadiness.client_limited(windows)])
