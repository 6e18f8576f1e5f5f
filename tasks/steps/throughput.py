"""Throughput: non-streaming completion tokens over wall clock, fixed output, prompts that never repeat.

The same work is counted twice, by the client (usage) and by the engine (its counters before and after). A short
streamed twin gives TTFT and TPOT; it is checked against the headline, and is never the headline itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from configs.steps.smoke import OUTPUT_TOKENS
from configs.steps.throughput import Condition, ThroughputStep
from tasks.context import Progress, StepContext
from tasks.guards.finding import Finding, Judgement
from tasks.guards.steadiness import with_steadiness
from tasks.prompts import prompt_seed
from tasks.timing.condition_verdict import judge_condition, smoke_findings
from tasks.timing.finished import finished
from tasks.timing.repeats import next_window, percent_done
from tasks.timing.timed import with_failures
from tasks.timing.windows import measured_window, request_row, warm_up
from warehouse.statistics.windows import rate_of
from warehouse.steps.throughput import REQUESTS, WINDOWS

WINDOW = ("condition", "mode", "repeat", "attempt")
"""What identifies a window, and ties requests to it."""


async def measure(ctx: StepContext, spec: ThroughputStep) -> list[Judgement]:
    """Measure every condition; rows go to `requests` and `windows`, one part of each per window."""
    whole = [(each.name, partial(_is_whole, each)) for each in spec.conditions]
    windows, requests = await finished(ctx, WINDOWS, REQUESTS, WINDOW, whole)
    for condition in spec.conditions:
        if next_window(condition, windows) is None:
            continue
        warm = await warm_up(ctx, spec.prompts, condition)
        beside = warm.failures
        while (wanted := next_window(condition, windows)) is not None:
            window, rows = await measured_window(ctx, spec.prompts, condition, *wanted)
            if wanted == ("fixed", 0):
                window["warmup_logprob"] = warm.mean_logprob
            window, beside = with_failures(window, beside), []
            # requests first: a window row without its requests can't exist
            await ctx.write(REQUESTS, rows)
            await ctx.write(WINDOWS, [window])
            windows.append(window)
            requests += rows
            ctx.tell(_progress(spec, condition, windows))
    return [
        with_steadiness(said, _windows_of(condition, said.mode, windows), condition.repeats.within)
        for condition in spec.conditions
        for said in judge_condition(ctx.cell, ctx.planned.gpu, condition, windows, requests)
    ]


def _is_whole(condition: Condition, windows: Sequence[dict[str, Any]]) -> bool:
    return next_window(condition, windows) is None


def _progress(spec: ThroughputStep, condition: Condition, windows: Sequence[dict[str, Any]]) -> Progress:
    """What the last of `windows` showed."""
    last = windows[-1]
    mode, rate = last["mode"], rate_of([last])
    most = condition.repeats.max
    of = f"/{most}" if condition.repeats.within is None else f" of at most {most}"
    number = f"{last['repeat'] + 1}{of}" if mode == "fixed" else "1/1"
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
