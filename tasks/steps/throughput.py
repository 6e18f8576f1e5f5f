"""Throughput: non-streaming completion tokens over wall clock, fixed output, prompts that never repeat.

The same work is counted twice, by the client (usage) and by the engine (its counters before and after). A short
streamed twin gives TTFT and TPOT; it is checked against the headline, and is never the headline itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import mean, median
from typing import Any

from configs.steps.smoke import OUTPUT_TOKENS
from configs.steps.throughput import Condition, ThroughputStep
from tasks.context import Progress, StepContext
from tasks.guards.drafting import acceptance_out_of_range, dead_draft
from tasks.guards.finding import Finding, Judgement, judge
from tasks.guards.speed import ceiling_tok_s, impossible_speed, stream_mismatch
from tasks.guards.steadiness import with_steadiness
from tasks.guards.text import blank_output, looping_text
from tasks.guards.tokens import engine_preemption, prefix_cache_hit, short_output, token_mismatch
from tasks.prompts import build_prompt, prompt_seed
from tasks.repeats import next_window, percent_done
from tasks.steady import rate_of
from tasks.windows import counted_in, measured_window, request_row, warm_up
from warehouse.steps.throughput import REQUESTS, WINDOWS

WINDOW = ("condition", "mode", "repeat")
"""Columns that identify a window: measured whole or not at all, and kept if an earlier attempt finished it."""

REQUESTS_OF_WINDOW = (*WINDOW, "attempt")
"""Columns that tie requests to their window: a killed attempt may leave requests without one."""


async def measure(ctx: StepContext, spec: ThroughputStep) -> list[Judgement]:
    """Measure every condition; rows go to `requests` and `windows`, one part of each per window."""
    windows = await ctx.resume(WINDOWS, WINDOW)
    finished = {tuple(window[column] for column in REQUESTS_OF_WINDOW) for window in windows}
    requests = await ctx.resume(REQUESTS, REQUESTS_OF_WINDOW, only=finished)
    for condition in spec.conditions:
        is_warm = False
        while (wanted := next_window(condition, windows)) is not None:
            if not is_warm:
                await warm_up(ctx, spec.prompts, condition)
                is_warm = True
            window, rows = await measured_window(ctx, spec.prompts, condition, *wanted)
            # requests first: a window row without its requests can't exist
            await ctx.write(REQUESTS, rows)
            await ctx.write(WINDOWS, [window])
            windows.append(window)
            requests += rows
            ctx.tell(_progress(spec, condition, windows))
    return [
        with_steadiness(said, _windows_of(condition, said.mode, windows), condition.repeats.within)
        for condition in spec.conditions
        for said in judge_condition(ctx, condition, windows, requests)
    ]


def _progress(spec: ThroughputStep, condition: Condition, windows: Sequence[dict[str, Any]]) -> Progress:
    """What the last of `windows` showed."""
    last = windows[-1]
    mode, rate = last["mode"], rate_of([last])
    number = f"{last['repeat'] + 1}/{condition.repeats}" if mode == "fixed" else "1/1"
    again = f", measured {last['tries']} times" if last["tries"] > 1 else ""
    line = f"{condition.name} {mode} {number}: {rate:.0f} tok/s{again}"
    return Progress(percent_done(spec.conditions, windows), line, rate)


def _windows_of(condition: Condition, mode: str | None, windows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    return [row for row in windows if (row["condition"], row["mode"]) == (condition.name, mode)]


async def smoke(ctx: StepContext, spec: ThroughputStep, items: int) -> list[Finding | None]:
    """Make a few short generations of the first condition, one at a time."""
    condition = spec.conditions[0]
    asked_tokens = min(OUTPUT_TOKENS, condition.output_tokens)
    before = await ctx.counters()
    rows: list[dict[str, Any]] = []
    for index in range(items):
        seed = prompt_seed("smoke", index)
        prompt = build_prompt(spec.prompts, seed, condition.context_tokens, condition.output_tokens)
        reply = await ctx.client.complete(ctx.client.request(prompt, asked_tokens, fixed=True))
        rows.append(
            {
                "condition": "smoke",
                "mode": "fixed",
                "output_tokens": asked_tokens,
                "concurrency": 1,
                "context_tokens": condition.context_tokens,
                "repeat": 0,
                "request_id": f"smoke/{index}",
                **request_row(reply),
            }
        )
        ctx.tell(Progress(100 * (index + 1) / items, f"generation {index + 1}/{items}"))
    counted = await ctx.counters_after(before, items)
    await ctx.write(REQUESTS, rows)
    return [
        short_output(asked_tokens, [row["completion_tokens"] for row in rows]),
        token_mismatch(sum(row["completion_tokens"] for row in rows), counted),
        blank_output([row["text"] for row in rows]),
        dead_draft(ctx.cell.technique, counted),
        acceptance_out_of_range(ctx.cell.k, counted),
        looping_text([row["loop_share"] for row in rows]),
    ]


def judge_condition(
    ctx: StepContext, condition: Condition, windows: Sequence[dict[str, Any]], requests: Sequence[dict[str, Any]]
) -> list[Judgement]:
    """What the guards say about a condition's fixed windows and about its streamed twin."""
    fixed = [row for row in windows if row["condition"] == condition.name and row["mode"] == "fixed"]
    sent = [row for row in requests if row["condition"] == condition.name and row["mode"] == "fixed"]
    streamed = [row for row in requests if row["condition"] == condition.name and row["mode"] == "stream"]
    counted = counted_in(fixed)
    tok_s = mean(row["completion_tokens"] / row["wall_s"] for row in fixed)
    ceiling = ceiling_tok_s(ctx.cell, ctx.planned.gpu, counted.acceptance_length or 1.0, condition.concurrency)
    if ctx.cell.technique.denoises:
        ceiling = None  # a denoising step commits any number of tokens: no acceptance length bounds it
    headline = judge(
        condition.name,
        "fixed",
        [
            short_output(condition.output_tokens, [row["completion_tokens"] for row in sent]),
            token_mismatch(sum(row["completion_tokens"] for row in fixed), counted),
            dead_draft(ctx.cell.technique, counted),
            acceptance_out_of_range(ctx.cell.k, counted),
            prefix_cache_hit(counted),
            engine_preemption(counted),
            impossible_speed(tok_s, ceiling),
            looping_text([row["loop_share"] for row in sent]),
        ],
    )
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
    if ctx.cell.technique.denoises:  # a canvas arrives at once: there is no streamed rate to compare
        return judge(condition.name, "stream", [short])
    rates = [1000 / row["tpot_ms"] for row in streamed if row["tpot_ms"]]
    stream_tok_s = median(rates) if len(rates) == len(streamed) else None
    decode_s = mean(row["wall_s"] for row in sent) - (prefill_s or 0.0)
    fixed_tok_s = (condition.output_tokens - 1) / decode_s
    return judge(condition.name, "stream", [short, stream_mismatch(stream_tok_s, fixed_tok_s)])
