"""Throughput: non-streaming completion tokens over wall clock, fixed output, prompts that never repeat.

The same work is counted twice, by the client (usage) and by the engine (its counters before and after); a short
streamed twin gives TTFT and TPOT and is held against the headline, never taken as it.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from statistics import mean, median
from typing import Any

from configs.schema import Condition, ThroughputStep
from tasks.client import Reply, StreamReply
from tasks.context import Progress, StepContext
from tasks.guards.drafting import acceptance_out_of_range, dead_draft
from tasks.guards.finding import Judgement, judge
from tasks.guards.speed import ceiling_tok_s, impossible_speed, stream_mismatch
from tasks.guards.text import loop_share, looping_text
from tasks.guards.tokens import engine_preemption, prefix_cache_hit, short_output, token_mismatch
from tasks.meters import Counters
from tasks.prompts import build_prompt, prompt_seed
from warehouse.tables import REQUESTS, WINDOWS

WINDOW = ("condition", "mode", "repeat")
"""A window is measured whole or not at all; finished windows of an earlier attempt are kept."""

REQUESTS_OF_WINDOW = (*WINDOW, "attempt")
"""Requests are kept with the window they belong to: a killed attempt may leave requests without one."""


async def measure(ctx: StepContext, spec: ThroughputStep) -> list[Judgement]:
    """Measure every condition; rows go to `requests` and `windows`, one part of each per window."""
    windows = await ctx.resume(WINDOWS, WINDOW)
    finished = {tuple(window[column] for column in REQUESTS_OF_WINDOW) for window in windows}
    requests = await ctx.resume(REQUESTS, REQUESTS_OF_WINDOW, only=finished)
    total = sum(condition.repeats + bool(condition.stream_requests) for condition in spec.conditions)
    for condition in spec.conditions:
        todo = [repeat for repeat in range(condition.repeats) if not _has(windows, condition, "fixed", repeat)]
        streams = [0] if condition.stream_requests and not _has(windows, condition, "stream", 0) else []
        if todo or streams:
            await _warm_up(ctx, spec, condition)
        for mode, repeats in (("fixed", todo), ("stream", streams)):
            for repeat in repeats:
                window, rows = await _window(ctx, spec, condition, mode, repeat)
                # requests first: a window row without its requests can't exist
                await ctx.write(REQUESTS, rows)
                await ctx.write(WINDOWS, [window])
                windows.append(window)
                requests += rows
                rate = window["completion_tokens"] / window["wall_s"]
                line = f"{condition.name} {mode} {repeat + 1}/{len(repeats)}: {rate:.0f} tok/s"
                ctx.tell(Progress(100 * len(windows) / total, line, rate))
    return [verdict for condition in spec.conditions for verdict in judge_condition(ctx, condition, windows, requests)]


def judge_condition(
    ctx: StepContext, condition: Condition, windows: Sequence[dict[str, Any]], requests: Sequence[dict[str, Any]]
) -> list[Judgement]:
    """What the guards say of a condition's fixed windows and of its streamed twin."""
    fixed = [row for row in windows if row["condition"] == condition.name and row["mode"] == "fixed"]
    sent = [row for row in requests if row["condition"] == condition.name and row["mode"] == "fixed"]
    streamed = [row for row in requests if row["condition"] == condition.name and row["mode"] == "stream"]
    counted = _counted(fixed)
    tok_s = mean(row["completion_tokens"] / row["wall_s"] for row in fixed)
    ceiling = ceiling_tok_s(ctx.cell, ctx.planned.gpu, counted.acceptance_length or 1.0, condition.concurrency)
    if ctx.cell.technique.method == "diffusion":
        ceiling = None  # a denoising step commits any number of tokens: no acceptance length bounds it
    headline = judge(condition.name, "fixed", [
        short_output(condition.output_tokens, [row["completion_tokens"] for row in sent]),
        token_mismatch(sum(row["completion_tokens"] for row in fixed), counted),
        dead_draft(ctx.cell.technique, counted),
        acceptance_out_of_range(ctx.cell.k, counted),
        prefix_cache_hit(counted),
        engine_preemption(counted),
        impossible_speed(tok_s, ceiling),
        looping_text([row["loop_share"] for row in sent]),
    ])  # fmt: skip
    if not streamed:
        return [headline]
    prefill_s = next(
        row["prefill_s"] for row in windows if (row["condition"], row["mode"]) == (condition.name, "stream")
    )
    return [headline, _judge_stream(ctx, condition, streamed, sent, prefill_s)]


def _judge_stream(
    ctx: StepContext,
    condition: Condition,
    streamed: Sequence[dict[str, Any]],
    sent: Sequence[dict[str, Any]],
    prefill_s: float | None,
) -> Judgement:
    short = short_output(condition.output_tokens, [row["completion_tokens"] for row in streamed])
    if ctx.cell.technique.method == "diffusion":  # a canvas arrives at once: there is no streamed rate to hold it to
        return judge(condition.name, "stream", [short])
    rates = [1000 / row["tpot_ms"] for row in streamed if row["tpot_ms"]]
    stream_tok_s = median(rates) if len(rates) == len(streamed) else None
    decode_s = mean(row["wall_s"] for row in sent) - (prefill_s or 0.0)
    fixed_tok_s = (condition.output_tokens - 1) / decode_s
    return judge(condition.name, "stream", [short, stream_mismatch(stream_tok_s, fixed_tok_s)])


async def _warm_up(ctx: StepContext, spec: ThroughputStep, condition: Condition) -> None:
    """Untimed requests of the same shape with prompts of their own."""
    for number in range(condition.warmup):
        ctx.tell(Progress(0, f"{condition.name}: warm-up {number + 1}/{condition.warmup}"))
        await asyncio.gather(*(
            ctx.client.complete(_body(ctx, spec, condition, f"warm-up-{number}", index))
            for index in range(condition.concurrency)
        ))  # fmt: skip


async def _window(
    ctx: StepContext, spec: ThroughputStep, condition: Condition, mode: str, repeat: int
) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """One repeat: its window row and its request rows."""
    number = max(condition.stream_requests if mode == "stream" else condition.requests, condition.concurrency)
    concurrency = condition.concurrency
    bodies = [_body(ctx, spec, condition, f"{mode}-{repeat}", index) for index in range(number)]
    prefill_s = await _prefill(ctx, spec, condition) if mode == "stream" else None
    send = ctx.client.stream if mode == "stream" else ctx.client.complete
    before = await ctx.counters()
    started = time.perf_counter()
    replies: list[Reply | StreamReply] = await _in_flight(send, bodies, concurrency)
    wall_s = time.perf_counter() - started
    counted = await ctx.counters_after(before, number)
    shape = {
        "condition": condition.name, "mode": mode, "context_tokens": condition.context_tokens,
        "output_tokens": condition.output_tokens, "concurrency": concurrency, "repeat": repeat,
    }  # fmt: skip
    rows = [
        {**shape, **_request_row(reply), "request_id": f"{condition.name}/{mode}-{repeat}/{index}"}
        for index, reply in enumerate(replies)
    ]
    window = {
        **shape, "requests": number, "wall_s": wall_s, "prefill_s": prefill_s,
        "chars": sum(row["chars"] for row in rows),
        "completion_tokens": sum(reply.completion_tokens for reply in replies), **_engine_columns(counted),
    }  # fmt: skip
    return window, rows


async def _prefill(ctx: StepContext, spec: ThroughputStep, condition: Condition) -> float:
    """Seconds that the shape takes for its first token, without streaming: what the streamed twin is held against."""
    bodies = [
        _body(ctx, spec, condition, "prefill", index) | {"max_tokens": 1} for index in range(condition.concurrency)
    ]
    started = time.perf_counter()
    await _in_flight(ctx.client.complete, bodies, condition.concurrency)
    return time.perf_counter() - started


async def _in_flight(send: Any, bodies: Sequence[dict[str, Any]], concurrency: int) -> list[Any]:
    """Answers in the bodies' order, at most `concurrency` requests at a time."""
    slots = asyncio.Semaphore(concurrency)

    async def one(body: dict[str, Any]) -> Any:
        async with slots:
            return await send(body)

    return list(await asyncio.gather(*(one(body) for body in bodies)))


def _body(ctx: StepContext, spec: ThroughputStep, condition: Condition, window: str, index: int) -> dict[str, Any]:
    seed = prompt_seed(condition.name, window, index)
    prompt = build_prompt(spec.prompts, seed, condition.context_tokens, condition.output_tokens)
    return ctx.client.request(prompt, condition.output_tokens, fixed=True)


def _request_row(reply: Reply | StreamReply) -> dict[str, Any]:
    text = reply.text if isinstance(reply, StreamReply) else reply.reasoning + reply.body
    row: dict[str, Any] = {
        "prompt_tokens": reply.prompt_tokens, "completion_tokens": reply.completion_tokens, "wall_s": reply.wall_s,
        "finish_reason": reply.finish_reason, "chars": len(text), "loop_share": loop_share(text), "text": text,
    }  # fmt: skip
    if isinstance(reply, StreamReply):
        row |= {
            "ttft_ms": _ms(reply.first_token_s), "tpot_ms": _ms(reply.tpot_s), "chunks": reply.chunks,
            "largest_chunk_tokens": reply.largest_chunk_tokens,
        }  # fmt: skip
    return row


def _engine_columns(counted: Counters) -> dict[str, Any]:
    positions = counted.accepted_by_position
    return {
        "engine_generation_tokens": _whole(counted.generation_tokens),
        "engine_drafts": _whole(counted.drafts),
        "engine_draft_tokens": _whole(counted.draft_tokens),
        "engine_accepted_tokens": _whole(counted.accepted_tokens),
        "engine_accepted_by_position": None if positions is None else [int(value) for value in positions],
        "engine_denoising_steps": _whole(counted.denoising_steps),
        "engine_committed_tokens": _whole(counted.committed_tokens),
        "engine_prefix_hits": _whole(counted.prefix_hits),
        "engine_preemptions": _whole(counted.preemptions),
    }


def _counted(windows: Sequence[dict[str, Any]]) -> Counters:
    """Window rows summed back into counters; null if any window lacks one."""

    def total(column: str) -> float | None:
        values = [row[column] for row in windows]
        return None if any(value is None for value in values) else float(sum(values))

    return Counters(
        generation_tokens=total("engine_generation_tokens"), requests_finished=None, drafts=total("engine_drafts"),
        draft_tokens=total("engine_draft_tokens"), accepted_tokens=total("engine_accepted_tokens"),
        accepted_by_position=None, denoising_steps=total("engine_denoising_steps"),
        committed_tokens=total("engine_committed_tokens"), prefix_hits=total("engine_prefix_hits"),
        preemptions=total("engine_preemptions"),
    )  # fmt: skip


def _has(windows: Sequence[dict[str, Any]], condition: Condition, mode: str, repeat: int) -> bool:
    wanted = (condition.name, mode, repeat)
    return any((row["condition"], row["mode"], row["repeat"]) == wanted for row in windows)


def _whole(value: float | None) -> int | None:
    return None if value is None else int(value)


def _ms(seconds: float | None) -> float | None:
    return None if seconds is None else 1000 * seconds
