"""What the guards say about one condition of a throughput step: its repeats, and its streamed twin."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean, median

from configs.cell import Cell, Gpu
from configs.steps.throughput import NATURAL, Condition
from tasks.guards.answers import NONE_ALLOWED, blank_output
from tasks.guards.drafting import (
    acceptance_mismatch,
    acceptance_out_of_range,
    baseline_drafts,
    dead_draft,
    replay_missed,
)
from tasks.guards.finding import Finding, Judgement, judge
from tasks.guards.machine import same_experts, throttled
from tasks.guards.speed import (
    ceiling_tok_s,
    clock_mismatch,
    floor_tok_s,
    held_back,
    impossible_speed,
    late_first_token,
    step_bytes,
    stream_mismatch,
    tokens_per_step,
    too_slow,
)
from tasks.guards.text import degenerate_text, improbable_text
from tasks.guards.tokens import (
    counters_vanished,
    engine_preemption,
    failed_requests,
    ids_mismatch,
    prefix_cache_hit,
    prompt_length,
    short_output,
    token_mismatch,
)
from tasks.meters import Counters
from warehouse.parts import Row
from warehouse.statistics.windows import rate_of
from warehouse.verdicts import Reason

SHORTEST_OUTPUT = 1
"""Tokens of a natural answer as the ceiling takes them: some may be as short, so the ceiling stays above the truth."""


def judge_condition(
    served: Cell, gpu: Gpu, condition: Condition, windows: Sequence[Row], requests: Sequence[Row]
) -> list[Judgement]:
    """What the guards say about a condition's fixed windows, and about its natural and streamed ones if any.

    Args:
        served: the cell that the engine serves: in a control's visit the control.
        gpu: as planned.
        condition: the load shape.
        windows: rows of `windows`, of one visit on one machine; those of other conditions are left alone.
        requests: rows of `requests` that belong to them.
    """
    fixed, sent = _of(windows, condition, "fixed"), _of(requests, condition, "fixed")
    streamed = _of(requests, condition, "stream")
    shortest = min((row["prompt_tokens"] or 0 for row in sent), default=0)
    bytes_read = step_bytes(served, shortest, condition.output_tokens, condition.concurrency)
    prefill_s = _prefill_s(_of(windows, condition, "stream"), streamed)
    decoding = _decode_tok_s(condition, sent, prefill_s)
    headline = judge(
        condition.name,
        "fixed",
        [
            *work_findings(served, condition, fixed, sent, condition.output_tokens),
            _impossible(served, gpu, condition, fixed, bytes_read),
            _slow(served, gpu, condition, decoding, prefill_s, bytes_read),
            improbable_text([row.get("warmup_logprob") for row in fixed], is_real=served.model.weights == "real"),
        ],
    )
    natural = _natural(served, gpu, condition, _of(windows, condition, NATURAL), _of(requests, condition, NATURAL))
    if not streamed:
        return [headline, *natural]
    found = work_findings(served, condition, _of(windows, condition, "stream"), streamed, condition.output_tokens)
    found += [late_first_token(served, streamed), held_back(streamed)]
    if not served.technique.denoises:  # a canvas arrives at once: there is no streamed rate to compare
        found.append(_stream(streamed, decoding))
    return [headline, *natural, judge(condition.name, "stream", found)]


def _natural(
    served: Cell, gpu: Gpu, condition: Condition, windows: Sequence[Row], requests: Sequence[Row]
) -> list[Judgement]:
    """The same of answers that end by themselves, if there are any: of any length, but not blank."""
    if not windows:
        return []
    shortest = min((row["prompt_tokens"] or 0 for row in requests), default=0)
    bytes_read = step_bytes(served, shortest, SHORTEST_OUTPUT, condition.concurrency)
    is_real = served.model.weights == "real"
    found = [
        *work_findings(served, condition, windows, requests, None),
        _impossible(served, gpu, condition, windows, bytes_read),
        blank_output([row["text"] for row in requests]) if is_real else None,
    ]
    return [judge(condition.name, NATURAL, found)]


def smoke_findings(served: Cell, asked_tokens: int, rows: Sequence[Row], counted: Counters) -> list[Finding | None]:
    """What the guards say about a few generations before hours are spent.

    Args:
        served: the cell that the engine serves.
        asked_tokens: length asked for.
        rows: of `requests`, all of one condition.
        counted: by the engine, over the same requests.
    """
    lengths = [row["completion_tokens"] for row in rows]
    real = served.model.weights == "real"
    return [
        short_output(asked_tokens, lengths),
        token_mismatch(sum(lengths), counted),
        ids_mismatch(rows),
        *drafting_findings(served, counted),
        acceptance_mismatch(served.k, rows, counted),
        blank_output([row["text"] for row in rows], NONE_ALLOWED) if real else None,
        prompt_length(rows[0]["context_tokens"], [row["prompt_tokens"] for row in rows]),
        *text_findings(served, rows),
    ]


def counted_in(windows: Sequence[Row]) -> Counters:
    """Window rows summed back into counters; None for each that any window lacks."""

    def total(column: str) -> float | None:
        values = [row[column] for row in windows]
        return None if any(value is None for value in values) else float(sum(values))

    positions = [row["engine_accepted_by_position"] for row in windows]
    known = all(each is not None for each in positions) and len({len(each) for each in positions}) == 1
    return Counters(
        generation_tokens=total("engine_generation_tokens"),
        requests_finished=None,
        drafts=total("engine_drafts"),
        draft_tokens=total("engine_draft_tokens"),
        accepted_tokens=total("engine_accepted_tokens"),
        accepted_by_position=tuple(map(float, map(sum, zip(*positions, strict=True)))) if known else None,
        denoising_steps=total("engine_denoising_steps"),
        committed_tokens=total("engine_committed_tokens"),
        prefix_hits=total("engine_prefix_hits"),
        preemptions=total("engine_preemptions"),
    )


def _of(rows: Sequence[Row], condition: Condition, mode: str) -> list[Row]:
    return [row for row in rows if (row["condition"], row["mode"]) == (condition.name, mode)]


def work_findings(
    served: Cell, condition: Condition, windows: Sequence[Row], requests: Sequence[Row], asked_tokens: int | None
) -> list[Finding | None]:
    """Was the work done that a speed is told of, streamed or not: its tokens, its drafts, its prompts, its text?

    `asked_tokens` is every answer's length; None: they end by themselves.
    """
    counted = counted_in(windows)
    lengths = [row["completion_tokens"] for row in requests]
    short = None if asked_tokens is None else short_output(asked_tokens, lengths)
    failed = failed_requests(windows)
    if failed is not None:  # the engine counted work of theirs, too: no sum can hold
        return [failed, short]
    return [
        short,
        token_mismatch(sum(row["completion_tokens"] for row in windows), counted),
        ids_mismatch(requests),
        clock_mismatch(requests),
        *drafting_findings(served, counted),
        acceptance_mismatch(served.k, requests, counted),
        prefix_cache_hit(counted, served.serving),
        engine_preemption(counted),
        throttled(windows),
        same_experts(served.model, served.technique, served.k, condition.concurrency),
        *text_findings(served, requests),
        prompt_length(condition.context_tokens, [row["prompt_tokens"] for row in requests]),
    ]


def drafting_findings(served: Cell, counted: Counters) -> list[Finding | None]:
    """What an engine's counters give away about drafts: those of a dead one, of AR's own, or ones that can't be."""
    return [
        counters_vanished(served.technique, counted),
        dead_draft(served.technique, counted),
        baseline_drafts(served.technique, counted),
        acceptance_out_of_range(served.k, counted),
        replay_missed(served.technique, served.acceptance, counted),
    ]


def text_findings(served: Cell, rows: Sequence[Row]) -> list[Finding | None]:
    """Made-up weights write nonsense, and are published as made up."""
    if served.model.weights == "dummy":
        return []
    return [degenerate_text(rows), improbable_text([row.get("mean_logprob") for row in rows])]


def _prefill_s(windows: Sequence[Row], streamed: Sequence[Row]) -> float | None:
    """Seconds to the first token: the least of the probes and the streams' median, since a probe may meet a compiler.

    None where nothing was streamed.
    """
    probes = [row["prefill_s"] for row in windows if row["prefill_s"] is not None]
    first = [row["ttft_ms"] / 1000 for row in streamed if row["ttft_ms"] is not None]
    return min([*probes, *([median(first)] if first else [])], default=None)


def _decode_tok_s(condition: Condition, sent: Sequence[Row], prefill_s: float | None) -> list[float]:
    """Each repeat's decode rate of one request, tok/s: later tokens over mean seconds less prefill.

    Repeats that were over before a first token could come are left out: the prefill is then that of another load.
    """
    repeats: dict[int, list[float]] = {}
    for row in sent:
        repeats.setdefault(row["repeat"], []).append(row["wall_s"])
    seconds = [fmean(each) - (prefill_s or 0.0) for each in repeats.values()]
    return [(condition.output_tokens - 1) / decode_s for decode_s in seconds if decode_s > 0]


def _impossible(
    served: Cell, gpu: Gpu, condition: Condition, windows: Sequence[Row], bytes_read: float
) -> Finding | None:
    tokens = sum(row["completion_tokens"] for row in windows)
    per_step = tokens_per_step(served, tokens, counted_in(windows))
    return impossible_speed(rate_of(windows), ceiling_tok_s(served, gpu, bytes_read, per_step, condition.concurrency))


def _slow(
    served: Cell, gpu: Gpu, condition: Condition, decoding: Sequence[float], prefill_s: float | None, step: float
) -> Finding | None:
    """One request at a time, and with the prefill known or short: else a long prompt would look like slow decoding."""
    prefill_known = prefill_s is not None or condition.context_tokens <= condition.output_tokens
    if condition.concurrency > 1 or not prefill_known or not decoding:
        return None
    return too_slow(fmean(decoding), floor_tok_s(served, gpu, step))


def _stream(streamed: Sequence[Row], decoding: Sequence[float]) -> Finding | None:
    """Of the streams that were timed; none of them: all came in step."""
    if not decoding:
        sentence = "the first token came later than the same work took as a whole without streaming"
        return Finding(Reason.STREAM_MISMATCH, "rejected", sentence)
    timed = [row for row in streamed if row["ttft_ms"] is not None]
    return stream_mismatch([1000 / row["tpot_ms"] if row["tpot_ms"] else None for row in timed], decoding)
