"""Throughput: non-streaming completion tokens over wall clock, fixed output, prompts that never repeat.

The same work is counted twice, by the client (usage) and by the engine (its counters before and after). A short
streamed twin gives TTFT and TPOT; it is checked against the headline, and is never the headline itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from configs.steps.smoke import OUTPUT_TOKENS
from configs.steps.throughput import Condition, ThroughputStep
from tasks.condition_verdict import judge_condition, smoke_findings
from tasks.context import Progress, StepContext
from tasks.guards.finding import Finding, Judgement
from tasks.prompts import prompt_seed
from tasks.windows import measured_window, request_row, warm_up
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
    total = sum(condition.repeats + bool(condition.stream_requests) for condition in spec.conditions)
    for condition in spec.conditions:
        todo = [repeat for repeat in range(condition.repeats) if not _has(windows, condition, "fixed", repeat)]
        streams = [0] if condition.stream_requests and not _has(windows, condition, "stream", 0) else []
        if todo or streams:
            await warm_up(ctx, spec.prompts, condition)
        for mode, repeats in (("fixed", todo), ("stream", streams)):
            for repeat in repeats:
                window, rows = await measured_window(ctx, spec.prompts, condition, mode, repeat)
                # requests first: a window row without its requests can't exist
                await ctx.write(REQUESTS, rows)
                await ctx.write(WINDOWS, [window])
                windows.append(window)
                requests += rows
                rate = window["completion_tokens"] / window["wall_s"]
                line = f"{condition.name} {mode} {repeat + 1}/{len(repeats)}: {rate:.0f} tok/s"
                ctx.tell(Progress(100 * len(windows) / total, line, rate))
    return [
        verdict
        for condition in spec.conditions
        for verdict in judge_condition(ctx.cell, ctx.planned.gpu, condition, windows, requests)
    ]


async def smoke(ctx: StepContext, spec: ThroughputStep, items: int) -> list[Finding | None]:
    """Make a few short generations of the first condition, one at a time."""
    condition = spec.conditions[0]
    asked_tokens = min(OUTPUT_TOKENS, condition.output_tokens)
    before = await ctx.counters()
    rows: list[dict[str, Any]] = []
    for index in range(items):
        seed = prompt_seed("smoke", index)
        prompt = await ctx.prompt(spec.prompts, seed, condition.context_tokens, condition.output_tokens)
        asked = ctx.client.request(prompt, asked_tokens, fixed=True, token_ids=True, logprobs="written")
        reply = await ctx.client.complete(asked)
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
    return smoke_findings(ctx.cell, asked_tokens, rows, counted)


def _has(windows: Sequence[dict[str, Any]], condition: Condition, mode: str, repeat: int) -> bool:
    wanted = (condition.name, mode, repeat)
    return any((row["condition"], row["mode"], row["repeat"]) == wanted for row in windows)
