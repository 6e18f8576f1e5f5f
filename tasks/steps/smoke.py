"""Smoke: questions that no working model misses, and a few items of each kind of work that the cell will do for hours.

A rejected one stops the cell here.
"""

from __future__ import annotations

from configs.steps.smoke import SmokeStep, has_sanity
from tasks.context import StepContext
from tasks.guards.finding import Finding, Judgement, judge
from tasks.known_steps import trial_of
from tasks.sanity_questions import sanity
from warehouse.ledger.steps.evaluation import EXCHANGES


async def measure(ctx: StepContext, spec: SmokeStep) -> list[Judgement]:
    """Ask, then try each step that the cell is planned for; any `rejected` finding stops the cell."""
    ctx.recorded = await ctx.resume(EXCHANGES, ("suite", "sample", "request_hash", "occurrence"))
    others = [step for step in ctx.planned.steps if not step.is_gate]
    tried = [(step, trial) for step in others if (trial := trial_of(step)) is not None]
    before = int(has_sanity(ctx.cell))
    parts = before + len(tried)
    findings: list[Finding | None] = []
    if before:
        findings += await sanity(ctx.part(0, parts))
    for index, (step, trial) in enumerate(tried, start=before):
        findings += await trial(ctx.part(index, parts), step, spec.items)
    return [judge(None, None, findings)]
