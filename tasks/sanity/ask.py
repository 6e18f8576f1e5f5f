"""Asks the ten questions and keeps the answers."""

from __future__ import annotations

import asyncio
from typing import Any

from configs.steps.smoke import SANITY_AT_ONCE, sanity_tokens
from tasks.client import Reply
from tasks.context import Progress, StepContext
from tasks.guards.finding import Finding
from tasks.guards.sanity import cut_off_sanity, failed_sanity
from tasks.guards.text import improbable_text
from tasks.prompts import Prompt
from tasks.sanity.general import SanityQuestion
from tasks.sanity.questions import questions_for
from warehouse.steps.smoke import SANITY


async def sanity(ctx: StepContext) -> list[Finding | None]:
    """Ask what no earlier attempt asked, as the cell decodes; store the answers; say what they give away."""
    rows = await ctx.resume(SANITY, ("question_id",))
    answered = {row["question_id"] for row in rows}
    asked = [question for question in questions_for(ctx.cell.model) if question.question_id not in answered]
    fresh = await _answers(ctx, asked)
    await ctx.write(SANITY, fresh)
    rows += fresh
    ctx.tell(Progress(100, f"{sum(row['is_right'] for row in rows)} of {len(rows)} sanity questions right"))
    return [failed_sanity(rows), cut_off_sanity(rows), improbable_text([row["mean_logprob"] for row in rows])]


async def _answers(ctx: StepContext, asked: list[SanityQuestion]) -> list[dict[str, Any]]:
    slots = asyncio.Semaphore(SANITY_AT_ONCE)
    most_tokens = sanity_tokens(ctx.cell)

    async def one(question: SanityQuestion) -> Reply:
        async with slots:
            body = ctx.client.request(Prompt(question.prompt), most_tokens, fixed=False, logprobs="written")
            return await ctx.client.complete(body)

    replies = await asyncio.gather(*map(one, asked))
    return [_row(question, reply) for question, reply in zip(asked, replies, strict=True)]


def _row(question: SanityQuestion, reply: Reply) -> dict[str, Any]:
    return {
        "question_id": question.question_id,
        "language": question.language,
        "prompt": question.prompt,
        "wanted": question.wanted,
        "body": reply.body,
        "reasoning": reply.reasoning,
        "is_right": reply.finish_reason != "length" and question.is_right(reply.body),
        "finish_reason": reply.finish_reason,
        "completion_tokens": reply.completion_tokens,
        "mean_logprob": reply.mean_logprob,
    }
