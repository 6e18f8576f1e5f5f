"""Smoke: questions that no working model misses, and a few items of each kind of work; what is rejected stops here."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any

from configs.cell import Model
from configs.step import MeasuredStep
from configs.steps.smoke import SANITY_AT_ONCE, SANITY_QUESTIONS, SmokeStep, has_sanity, sanity_tokens
from tasks.client import Reply
from tasks.context import Progress, StepContext, Trial, trial_of
from tasks.family.words import KINDS, Question, questions
from tasks.guards.answers import cut_off_sanity, failed_sanity
from tasks.guards.text import improbable_text
from tasks.prompts import Prompt
from tasks.sanity_questions import CONTINUED, GENERAL, SanityQuestion
from tasks.steps.eval_tiny import last_letter
from warehouse.ledger.steps import EXCHANGES, SANITY
from warehouse.ledger.verdicts import Finding, Judgement, judge

FAMILY_SEED = 10  # gives the sanity questions another draw than smoke's tries and the evaluation's items
FAMILY_LANGUAGE = "demo"  # the family's own words are no human language
LOOK_S = 2.0  # between two looks at how many tokens there are, while answers are written
SHOWN_CHARS = 24  # of an answer, in its line

LOOP = {"max_pattern_size": 128, "min_count": 16}
"""What ends an answer early: the same tokens, 128 at the most, sixteen times in a row (vLLM 0.32.0, `v1/core/sched/
utils.py`; an engine that doesn't know the field goes on to the longest answer). Greedy decoding doesn't leave such a
loop again. A model that thinks says nothing so often, and if it does its answer is unknown, as one that is cut off,
and not wrong."""


async def measure(ctx: StepContext, spec: SmokeStep) -> list[Judgement]:
    """Ask, and try each step that the cell is planned for; any `rejected` finding stops the cell, and what is left.

    What is cheap comes first: short generations of timed steps, then the questions, then what may write at length.
    """
    ctx.recorded = await ctx.resume(EXCHANGES, ("suite", "sample", "request_hash", "occurrence"))
    others = sorted((step for step in ctx.planned.steps if not step.is_gate), key=partial(_trial_tokens, ctx, spec))
    tried = [(step, trial) for step in others if (trial := trial_of(step)) is not None]
    short = [_tries(trial, step, spec.items) for step, trial in tried if step.is_timed]
    longer = [_tries(trial, step, spec.items) for step, trial in tried if not step.is_timed]
    parts = [*short, *([sanity] if has_sanity(ctx.cell) else []), *longer]
    findings: list[Finding | None] = []
    for index, ask in enumerate(parts):
        findings += await ask(ctx.part(index, len(parts)))
        if any(finding is not None and finding.severity == "rejected" for finding in findings):
            break
    return [judge(None, None, findings)]


Part = Callable[[StepContext], Awaitable[list[Finding | None]]]


def _tries(trial: Trial, step: MeasuredStep, items: int) -> Part:
    return lambda ctx: trial(ctx, step, items)


def questions_for(model: Model) -> tuple[SanityQuestion, ...]:
    """What a model is asked: a member of the demo family what it was taught, a base model to continue, any other."""
    if model.family_member is None:
        return GENERAL if model.chat else CONTINUED
    kinds = ("lookup",) if model.family_member == "diffusion" else KINDS  # that member was taught nothing else
    drawn = [each for each in questions(SANITY_QUESTIONS * len(KINDS), FAMILY_SEED) if each.kind in kinds]
    return tuple(_with_letter(question) for question in drawn[:SANITY_QUESTIONS])


def _with_letter(asked: Question) -> SanityQuestion:
    return SanityQuestion(
        asked.item_id, FAMILY_LANGUAGE, asked.prompt, asked.answer, lambda body: last_letter(body) == asked.answer
    )


async def sanity(ctx: StepContext) -> list[Finding | None]:
    """Ask what no earlier attempt asked, as the cell decodes; store the answers; say what they give away.

    Each answer is stored and shown as it comes. Once so many are cut off that the verdict is no better than suspect,
    whatever the others say, no other is asked.
    """
    rows = await ctx.resume(SANITY, ("question_id",))
    shown = [*rows]
    slots, most_tokens, chat = asyncio.Semaphore(SANITY_AT_ONCE), sanity_tokens(ctx.cell), ctx.cell.model.chat

    async def ask(question: SanityQuestion) -> dict[str, Any] | None:
        async with slots:
            if chat and cut_off_sanity(rows) is not None:
                return None
            body = ctx.client.request(Prompt(question.prompt), most_tokens, fixed=False, logprobs="written")
            row = _row(question, await ctx.client.complete({**body, "repetition_detection": LOOP}), chat)
            rows.append(row)
            return row

    answered = {row["question_id"] for row in rows}
    left = [each for each in questions_for(ctx.cell.model) if each.question_id not in answered]
    asking = [asyncio.create_task(ask(each)) for each in left]
    telling = asyncio.create_task(_tell_tokens(ctx, shown))
    try:
        for answer in asyncio.as_completed(asking):
            if (row := await answer) is not None:
                await ctx.write(SANITY, [row])
                shown.append(row)
                ctx.tell(_progress(shown))
    finally:  # one that failed ends the step: nobody waits for the others
        for task in (*asking, telling):
            task.cancel()
        await asyncio.gather(*asking, telling, return_exceptions=True)
    if not telling.cancelled():
        telling.result()  # it never ends by itself: what ended it is told
    ctx.tell(Progress(100, f"{sum(row['is_right'] for row in rows)} of {len(rows)} sanity questions right"))
    cut_off = cut_off_sanity(rows) if chat else None
    odd = improbable_text([row["mean_logprob"] for row in rows])
    return [failed_sanity(rows, may_be_cut=chat), cut_off, odd]


def _trial_tokens(ctx: StepContext, spec: SmokeStep, step: MeasuredStep) -> float:
    """Output tokens of a step's trial, one after another."""
    return sum(work.requests * work.output_tokens / work.concurrency for work in step.trial(ctx.cell, spec.items))


async def _tell_tokens(ctx: StepContext, rows: Sequence[dict[str, Any]]) -> None:
    """Say how many tokens were written of answers that aren't finished; it doesn't return."""
    before = (await ctx.counters()).generation_tokens
    while True:
        await asyncio.sleep(LOOK_S)
        now = (await ctx.counters()).generation_tokens
        if before is not None and now is not None:
            ctx.tell(_progress(rows, int(now - before)))


def _progress(rows: Sequence[dict[str, Any]], tokens: int | None = None) -> Progress:
    """How many questions are answered, the last one's answer, and the tokens of all so far."""
    last = f": {rows[-1]['question_id']} {rows[-1]['body'].strip()[:SHOWN_CHARS]!r}" if rows else ""
    so_far = "" if tokens is None else f", {tokens} tokens so far"
    line = f"{len(rows)} of {SANITY_QUESTIONS} sanity questions answered{last}{so_far}"
    return Progress(100 * len(rows) / SANITY_QUESTIONS, line)


def _row(question: SanityQuestion, reply: Reply, chat: bool) -> dict[str, Any]:
    is_whole = not chat or reply.finish_reason == "stop"
    return {
        **question._asdict(),
        "body": reply.body,
        "reasoning": reply.reasoning,
        "is_right": is_whole and question.is_right(reply.body),
        "finish_reason": reply.finish_reason,
        "completion_tokens": reply.completion_tokens,
        "mean_logprob": reply.mean_logprob,
    }
