"""What the guards say about one load of a load step, and about each category under it."""

from __future__ import annotations

from collections.abc import Sequence
from math import fsum
from statistics import median

from configs.cell import Cell, Gpu
from configs.steps.load import Offered, with_category
from configs.steps.throughput import STEADY_ROUNDS
from tasks.guards.answers import blank_output
from tasks.guards.drafting import acceptance_mismatch
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
    streamed_in_lumps,
    tokens_per_step,
    too_slow,
)
from tasks.guards.steadiness import BEHIND_SHARE, client_behind, client_limited, client_starved, unexplained, unsteady
from tasks.guards.tokens import (
    cut_prompts,
    engine_preemption,
    failed_requests,
    ids_mismatch,
    prefix_cache_hit,
    token_mismatch,
)
from tasks.meters import Counters
from tasks.steady import steps_of_answer
from tasks.timing.condition_verdict import SHORTEST_OUTPUT, counted_in, drafting_findings, text_findings
from warehouse.loads.windows import windows_of
from warehouse.parts import Row
from warehouse.verdicts import Reason


def judge_load(
    served: Cell,
    gpu: Gpu,
    load: Offered,
    windows: Sequence[Row],
    requests: Sequence[Row],
    again: Sequence[Finding | None] = (),
) -> list[Judgement]:
    """What the guards say about the whole suite under a load, and about each of its categories.

    The engine counts all requests together, so what its counters show is said of every category, and so is an
    unsteady machine; texts are a category's own.

    Args:
        served: the cell that the engine serves: in a control's visit the control.
        gpu: as planned.
        load: what was offered.
        windows: rows of `load_windows` of it.
        requests: stamped rows of `load_requests` that belong to them.
        again: what is said of an engine that is asked prompts again.
    """
    counted = counted_in(windows)
    shared = [
        *work_findings(served, windows, requests, counted),
        too_fast(served, gpu, load.concurrency or len(requests), windows, requests),
        slow_alone(served, gpu, load.concurrency, requests),
        _unsteady(served, load, requests),
        late_first_token(served, requests),
        held_back(requests),
        *again,
    ]
    categories: dict[str, list[Row]] = {}
    for row in requests:
        categories.setdefault(row["category"], []).append(row)
    said = [_judged(load, None, [*shared, *_answer_findings(served, requests)], windows, requests)]
    for category, rows in sorted(categories.items()):
        own = [row for row in windows if row["category"] == category]
        found = [*shared, *_answer_findings(served, rows)]
        said.append(_judged(load, category, found, own or windows, rows if own else requests))
    return said


def _judged(
    load: Offered, category: str | None, found: Sequence[Finding | None], windows: Sequence[Row], sent: Sequence[Row]
) -> Judgement:
    """The findings, and whether the client kept up in these windows, in which these requests were sent."""
    starved, condition = _starved(windows, sent), with_category(load.name, category)
    kept = unexplained([each for each in found if each is not None], starved)
    return judge(condition, load.mode, [*kept, starved, client_limited(windows), _behind(sent)])


def _behind(sent: Sequence[Row]) -> Finding | None:
    """Of an open loop; in a closed one a request is due when it is sent."""
    due = [row for row in sent if row.get("due_s") is not None]
    late_ms = [1000 * (row["sent_s"] - row["due_s"]) for row in due]
    return client_behind(late_ms, _first_ms(due))


def _first_ms(sent: Sequence[Row]) -> list[float]:
    return [row["ttft_ms"] for row in sent if row["ttft_ms"] is not None]


def smoke_findings(served: Cell, requests: Sequence[Row], counted: Counters) -> list[Finding | None]:
    """What the guards say about a few prompts before hours are spent."""
    tokens = sum(row["completion_tokens"] for row in requests)
    return [
        token_mismatch(tokens, counted),
        ids_mismatch(requests),
        *drafting_findings(served, counted),
        acceptance_mismatch(served.k, requests, counted),
        *_answer_findings(served, requests),
    ]


def work_findings(
    served: Cell, windows: Sequence[Row], requests: Sequence[Row], counted: Counters
) -> list[Finding | None]:
    """Was the work done that a speed is told of: its tokens, its drafts, each prompt computed once?"""
    failed = failed_requests(windows)
    if failed is not None:  # the engine counted work of theirs, too: no sum can hold
        return [failed]
    return [
        token_mismatch(sum(row["completion_tokens"] for row in windows), counted),
        ids_mismatch(requests),
        clock_mismatch(requests),
        *drafting_findings(served, counted),
        acceptance_mismatch(served.k, requests, counted),
        prefix_cache_hit(counted, served.serving),
        engine_preemption(counted),
        throttled(windows),
        same_experts(served.model, served.technique, served.k, round(_in_flight(windows, requests))),
    ]


def _in_flight(windows: Sequence[Row], sent: Sequence[Row]) -> float:
    """Requests at a time: as many as were asked for, or the mean of an open loop."""
    asked: int | None = windows[0]["concurrency"]
    return asked or fsum(row["wall_s"] for row in sent) / (fsum(row["wall_s"] for row in windows) or 1.0)


def _unsteady(served: Cell, load: Offered, requests: Sequence[Row]) -> Finding | None:
    """Repeats of the whole suite have the same share of every category, so their paces must agree.

    Those of a category are few prompts, which may differ by what they are about. Of a user's file nobody knows before
    it is read how many prompts a limit per category leaves. At a rate repeats make what is sent.

    Repeats are different prompts, on which drafts are worth more or less, so a drafting engine's pace is its decoding
    steps: by what it says of each answer's own drafts (vLLM from 0.29 on). Its counters can't tell: prompts are dealt
    to the repeats in turn, which so run through one another, and a window holds all of them. Where it says nothing of
    some answers (an older vLLM; block diffusion, for which 0.32.0 refuses `--per-request-spec-decode-metrics`), nobody
    can tell a slow repeat from one whose drafts were worth less: it is not judged, and the row says so
    (`warehouse.loads.rows`).
    """
    concurrency = load.concurrency
    if concurrency is None:
        return None
    if concurrency > 1 and len(requests) < STEADY_ROUNDS * concurrency:
        few = f"{len(requests)} requests have no steady state of {concurrency} at a time: ask {STEADY_ROUNDS} for each"
        return Finding(Reason.UNSTEADY, "suspect", few)
    steps = [*map(steps_of_answer, requests)]
    if None in steps and not served.technique.is_baseline:
        return None
    made = [row["completion_tokens"] for row in requests] if None in steps else steps
    windows = windows_of([{**row, "completion_tokens": each} for row, each in zip(requests, made, strict=True)])
    repeats = [row for row in windows if row["condition"] == load.name]
    what = "tokens/s" if None in steps else "decoding steps/s"
    return unsteady([row["completion_tokens"] / row["wall_s"] for row in repeats], None, what)


def _starved(windows: Sequence[Row], sent: Sequence[Row]) -> Finding | None:
    """Over all windows behind a figure together: a category's window may be short.

    By the clock of a first token where the client was late often enough to be in its 95th percentile, else by that of a
    mean request: among hundreds of first tokens one late moment of a long load is nothing.
    """
    seconds = fsum(row["wall_s"] for row in windows)
    if not seconds:
        return None
    late = sum(row.get("client_late_moments") or 0 for row in windows)
    first = _first_ms(sent) if late > BEHIND_SHARE * len(sent) else []
    waited = [(row["client_late_share"] or 0.0) * row["wall_s"] for row in windows]
    together = {
        "mode": "stream",
        "concurrency": _in_flight(windows, sent),
        "requests": sum(row["requests"] for row in windows),
        "wall_s": seconds,
        "prefill_s": median(first) / 1000 if first else None,
        "client_late_ms": max(row["client_late_ms"] for row in windows),
        "client_late_share": fsum(waited) / seconds,
    }
    return client_starved([together])


def _answer_findings(served: Cell, requests: Sequence[Row]) -> list[Finding | None]:
    real = served.model.weights == "real"
    chunks = [(row["completion_tokens"], row["largest_chunk_tokens"]) for row in requests]
    return [
        blank_output([row["text"] for row in requests]) if real else None,
        None if served.technique.denoises else streamed_in_lumps(chunks, (served.k or 0) + 1),
        cut_prompts(requests),
        *text_findings(served, requests),
    ]


def too_fast(
    served: Cell, gpu: Gpu, concurrency: int, windows: Sequence[Row], requests: Sequence[Row]
) -> Finding | None:
    """Of all windows together, ramp and tail included: slower than the rate that is published, so never too strict."""
    seconds, tokens = fsum(row["wall_s"] for row in windows), sum(row["completion_tokens"] for row in windows)
    if not seconds:
        return None
    shortest = min((row["prompt_tokens"] or 0 for row in requests), default=0)
    bytes_read = step_bytes(served, shortest, SHORTEST_OUTPUT, concurrency)
    per_step = tokens_per_step(served, tokens, counted_in(windows))
    return impossible_speed(tokens / seconds, ceiling_tok_s(served, gpu, bytes_read, per_step, concurrency))


def slow_alone(served: Cell, gpu: Gpu, concurrency: int | None, requests: Sequence[Row]) -> Finding | None:
    """Of one request at a time, and of what is no prefill: else a long prompt would look like slow decoding."""
    decoded = [each for row in requests if (each := _decoded(row)) is not None]
    if concurrency != 1 or not decoded:
        return None
    prompt, answer = (max(row[name] or 0 for row in requests) for name in ("prompt_tokens", "completion_tokens"))
    floor = floor_tok_s(served, gpu, step_bytes(served, prompt, answer, concurrency))
    return too_slow(fsum(tokens for tokens, _ in decoded) / fsum(seconds for _, seconds in decoded), floor)


def _decoded(request: Row) -> tuple[int, float] | None:
    """Tokens and seconds: of a stream those behind its first chunk, else of an answer longer than its prompt."""
    tokens: int = request["completion_tokens"]
    if "tpot_ms" not in request:
        return (tokens, request["wall_s"]) if tokens and request["prompt_tokens"] <= tokens else None
    later = tokens - (request["first_chunk_tokens"] or 0)
    return (later, later * request["tpot_ms"] / 1000) if request["tpot_ms"] and later else None
