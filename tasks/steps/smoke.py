"""Smoke: a few items of each kind of work that the cell will do for hours. A rejected one stops the cell here."""

from __future__ import annotations

from configs.steps.smoke import SmokeStep
from tasks.context import StepContext
from tasks.guards.finding import Finding, Judgement, judge
from tasks.known_steps import file_of
from warehouse.evals.tables import EXCHANGES


async def measure(ctx: StepContext, spec: SmokeStep) -> list[Judgement]:
    """Try each step that the cell is planned for; any `rejected` finding stops the cell."""
    ctx.recorded = await ctx.resume(EXCHANGES, ("suite", "sample", "request_hash", "occurrence"))
    tried = [step for step in ctx.planned.measured_steps if not step.is_gate]
    findings: list[Finding | None] = []
    for index, step in enumerate(tried):
        findings += await file_of(step).smoke(ctx.part(index, len(tried)), step, spec.items)
    return [judge(None, None, findings)]


async def smoke(ctx: StepContext, spec: SmokeStep, items: int) -> list[Finding | None]:
    """Nothing: this step is the try itself."""
    del ctx, spec, items
    return []
