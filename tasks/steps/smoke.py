"""Smoke: questions that no working model misses, and a few items of each kind of work; what is rejected stops here."""

from __future__ import annotations

from typing import Any

from configs.cell import Model
from configs.steps.smoke import SANITY_AT_ONCE, SANITY_QUESTIONS, SmokeStep, has_sanity, sanity_tokens
from tasks.client import Reply
from tasks.context import Progress, StepContext, trial_of
from tasks.family.words import KINDS, Question, questions
from tasks.guards.answers import cut_off_sanity, failed_sanity
from tasks.guards.text import improbable_text
from tasks.prompts import Prompt
from tasks.sanity_questions import GENERAL, SanityQuestion
from tasks.steps.eval_tiny import last_letter
from warehouse.ledger.steps import EXCHANGES, SANITY
from warehouse.ledger.verdicts import Finding, Judgement, judge

FAMILY_SEED = 10  # gives the sanity questions another draw than smoke's tries and the evaluation's items
FAMILY_LANGUAGE = "demo"  # the family's own words are no human language


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


def questions_for(model: Model) -> tuple[SanityQuestion, ...]:
    """What a model is asked: a member of the demo family what it was taught, any other the general questions."""
    if model.family_member is None:
        return GENERAL
    kinds = ("lookup",) if model.family_member == "diffusion" else KINDS  # that member was taught nothing else
    drawn = [each for each in questions(SANITY_QUESTIONS * len(KINDS), FAMILY_SEED) if each.kind in kinds]
    return tuple(_with_letter(question) for question in drawn[:SANITY_QUESTIONS])


def _with_letter(asked: Question) -> SanityQuestion:
    return SanityQuestion(
        asked.item_id, FAMILY_LANGUAGE, asked.prompt, asked.answer, lambda body: last_letter(body) == asked.answer
    )


async def sanity(ctx: StepContext) -> list[Finding | None]:
    """Ask what no earlier attempt asked, as the cell decodes; store the answers; say what they give away."""
    rows = await ctx.resume(SANITY, ("question_id",))
    answered = {row["question_id"] for row in rows}
    asked = [question for question in questions_for(ctx.cell.model) if question.question_id not in answered]
    most_tokens = sanity_tokens(ctx.cell)
    bodies = [ctx.client.request(Prompt(each.prompt), most_tokens, fixed=False, logprobs="written") for each in asked]
    replies = await ctx.client.complete_all(bodies, SANITY_AT_ONCE)
    fresh = [_row(question, reply) for question, reply in zip(asked, replies, strict=True)]
    await ctx.write(SANITY, fresh)
    rows += fresh
    ctx.tell(Progress(100, f"{sum(row['is_right'] for row in rows)} of {len(rows)} sanity questions right"))
    return [failed_sanity(rows), cut_off_sanity(rows), improbable_text([row["mean_logprob"] for row in rows])]


def _row(question: SanityQuestion, reply: Reply) -> dict[str, Any]:
    return {
        **question._asdict(),
        "body": reply.body,
        "reasoning": reply.reasoning,
        "is_right": reply.finish_reason != "length" and question.is_right(reply.body),
        "finish_reason": reply.finish_reason,
        "completion_tokens": reply.completion_tokens,
        "mean_logprob": reply.mean_logprob,
    }
