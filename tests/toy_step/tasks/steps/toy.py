"""Toy: greet, and keep what came back."""

from __future__ import annotations

from configs.steps.toy import OUTPUT_TOKENS, ToyStep
from tasks.context import Progress, StepContext
from tasks.guards.answers import blank_output
from tasks.prompts import Prompt
from warehouse.ledger.steps.toy import GREETINGS
from warehouse.ledger.verdicts import Finding, Judgement, judge


async def measure(ctx: StepContext, spec: ToyStep) -> list[Judgement]:
    """Greet as often as asked, going on behind the last answer that an earlier attempt stored."""
    rows = await ctx.resume(GREETINGS, ("number",))
    for number in range(len(rows), spec.greetings):
        row = await _greeted(ctx, number)
        await ctx.write(GREETINGS, [row])
        rows.append(row)
        ctx.tell(Progress(100 * len(rows) / spec.greetings, f"greeting {number + 1}/{spec.greetings}"))
    return [judge(None, None, [blank_output([row["answer"] for row in rows])])]


async def smoke(ctx: StepContext, spec: ToyStep, items: int) -> list[Finding | None]:
    """One greeting is enough to see whether there is an answer."""
    del spec, items
    return [blank_output([(await _greeted(ctx, -1))["answer"]])]


async def _greeted(ctx: StepContext, number: int) -> dict[str, object]:
    request = ctx.client.request(Prompt(f"Hello for the {number}. time!"), OUTPUT_TOKENS, fixed=False)
    return {"number": number, "answer": (await ctx.client.complete(request)).body}
