"""Smoke: five items of each kind of work that the cell will do for hours. Insane ones stop the cell here."""

from __future__ import annotations

from typing import Any

from configs.schema import EvalTinyStep, SmokeStep, ThroughputStep
from tasks.context import Progress, StepContext
from tasks.grading import CHOICE_CHANCE
from tasks.guards.drafting import acceptance_out_of_range, dead_draft
from tasks.guards.finding import Finding, Judgement, judge
from tasks.guards.score import SMOKE_CHANCE_P, at_chance
from tasks.guards.text import blank_output, loop_share, looping_text
from tasks.guards.tokens import short_output, token_mismatch
from tasks.prompts import build_prompt, prompt_seed
from tasks.steps import eval_tiny
from warehouse.tables import EVAL_ITEMS, REQUESTS

SMOKE_OUTPUT_TOKENS = 64
"""Length of a smoke generation: long enough for a loop or a dead draft to show."""

SMOKE_SEED = 17
"""Questions of the smoke are not those of the evaluation."""


async def measure(ctx: StepContext, spec: SmokeStep) -> list[Judgement]:
    """Try each kind of step that the cell is planned for; any `rejected` finding stops the cell."""
    findings: list[Finding | None] = []
    for step in ctx.planned.steps:
        if isinstance(step, ThroughputStep):
            findings += await _try_throughput(ctx, step, spec.items)
        elif isinstance(step, EvalTinyStep):
            findings += await _try_eval(ctx, step, spec.items)
    return [judge(None, None, findings)]


async def _try_throughput(ctx: StepContext, step: ThroughputStep, number: int) -> list[Finding | None]:
    condition = step.conditions[0]
    asked_tokens = min(SMOKE_OUTPUT_TOKENS, condition.output_tokens)
    before = await ctx.counters()
    rows: list[dict[str, Any]] = []
    for index in range(number):
        prompt = build_prompt(
            step.prompts, prompt_seed("smoke", index), condition.context_tokens, condition.output_tokens
        )
        reply = await ctx.client.complete(ctx.client.request(prompt, asked_tokens, fixed=True))
        text = reply.reasoning + reply.body
        rows.append({
            "condition": "smoke", "mode": "fixed", "output_tokens": asked_tokens, "concurrency": 1,
            "context_tokens": condition.context_tokens, "repeat": 0, "request_id": f"smoke/{index}",
            "prompt_tokens": reply.prompt_tokens, "completion_tokens": reply.completion_tokens,
            "wall_s": reply.wall_s, "finish_reason": reply.finish_reason, "chars": len(text),
            "loop_share": loop_share(text), "text": text,
        })  # fmt: skip
        ctx.tell(Progress(50 * (index + 1) / number, f"generation {index + 1}/{number}"))
    counted = await ctx.counters_after(before, number)
    await ctx.write(REQUESTS, rows)
    return [
        short_output(asked_tokens, [row["completion_tokens"] for row in rows]),
        token_mismatch(sum(row["completion_tokens"] for row in rows), counted),
        blank_output([row["text"] for row in rows]),
        dead_draft(ctx.cell.technique, counted),
        acceptance_out_of_range(ctx.cell.k, counted),
        looping_text([row["loop_share"] for row in rows]),
    ]


async def _try_eval(ctx: StepContext, step: EvalTinyStep, number: int) -> list[Finding | None]:
    rows = await eval_tiny.ask(ctx, eval_tiny.drawn(number, SMOKE_SEED, step.kind), step.max_tokens, concurrency=1)
    await ctx.write(EVAL_ITEMS, rows)
    right = sum(row["last_letter"] == row["gold"] for row in rows)
    ctx.tell(Progress(100, f"{right} of {number} right"))
    return [blank_output([row["body"] for row in rows]), at_chance(right, number, CHOICE_CHANCE, SMOKE_CHANCE_P)]
