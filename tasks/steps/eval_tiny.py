"""The demo family's own multiple-choice task, thinking on: it asks for `(X)` and nothing else.

A thinking model names letters while it thinks. Grading the first one it names scores at chance or below (0.146
instead of 0.844 in docs/sources.md: mtp-diffusion-h100); the answer is the last letter of the body. What models answer
to everybody's questions is read by `tasks.evals.extractors`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from configs.steps.eval_tiny import EvalTinyStep
from tasks.client import Reply
from tasks.context import Progress, StepContext
from tasks.evals.extractors import bracketed, last_bracketed
from tasks.family.words import KINDS, Question, questions
from tasks.frameworks.thoughts import without_thoughts
from tasks.guards.answers import EVAL_CHANCE_P, NONE_ALLOWED, SMOKE_CHANCE_P, at_chance, blank_output, truncated
from tasks.prompts import Prompt
from warehouse.ledger.steps import EVAL_ITEMS
from warehouse.ledger.verdicts import Finding, Judgement, judge

CHOICE_CHANCE = 0.25  # score of guessing among four options

LETTERS = "ABCD"

ITEMS_PER_PART = 12  # answers stored together: the most that a preemption can lose, well below 60 s of work
SMOKE_SEED = 17  # gives the smoke step other questions than the evaluation


async def measure(ctx: StepContext, spec: EvalTinyStep) -> list[Judgement]:
    """Ask every question that earlier attempts left unanswered; one part per `ITEMS_PER_PART` answers."""
    ctx.facts["seed"] = spec.seed
    rows = await ctx.resume(EVAL_ITEMS, ("item_id",))
    answered = {row["item_id"] for row in rows}
    todo = [question for question in drawn(spec.items, spec.seed, spec.kind) if question.item_id not in answered]
    for start in range(0, len(todo), ITEMS_PER_PART):
        asked = todo[start : start + ITEMS_PER_PART]
        fresh = await ask(ctx, asked, spec.max_tokens, spec.concurrency)
        await ctx.write(EVAL_ITEMS, fresh)
        rows += fresh
        ctx.tell(Progress(100 * len(rows) / spec.items, f"{_right(rows)} of {len(rows)} right"))
    found = [
        blank_output([row["body"] for row in rows]),
        truncated([row["finish_reason"] for row in rows]),
        at_chance(_right(rows), len(rows), CHOICE_CHANCE, EVAL_CHANCE_P),
    ]
    return [judge(None, None, found)]


async def smoke(ctx: StepContext, spec: EvalTinyStep, items: int) -> list[Finding | None]:
    """Ask a few other questions, one at a time."""
    rows = await ask(ctx, drawn(items, SMOKE_SEED, spec.kind), spec.max_tokens, concurrency=1)
    await ctx.write(EVAL_ITEMS, rows)
    right = _right(rows)
    ctx.tell(Progress(100, f"{right} of {items} right"))
    blank = blank_output([row["body"] for row in rows], NONE_ALLOWED)
    return [blank, at_chance(right, items, CHOICE_CHANCE, SMOKE_CHANCE_P)]


def drawn(items: int, seed: int, kind: str | None) -> list[Question]:
    """`items` different questions, the same for the same seed: of one kind, or of both in turn if `kind` is None."""
    if kind is None:
        return questions(items, seed)
    return [question for question in questions(items * len(KINDS), seed) if question.kind == kind]


async def ask(ctx: StepContext, asked: Sequence[Question], max_tokens: int, concurrency: int) -> list[dict[str, Any]]:
    """Answers to the questions as rows of `eval_items`, in the same order."""
    bodies = [ctx.client.request(Prompt(question.prompt), max_tokens, fixed=False) for question in asked]
    replies = await ctx.client.complete_all(bodies, concurrency)
    return [_row(question, reply) for question, reply in zip(asked, replies, strict=True)]


def _row(question: Question, reply: Reply) -> dict[str, Any]:
    return {
        "item_id": question.item_id,
        "kind": question.kind,
        "gold": question.answer,
        "last_letter": last_letter(reply.body),
        "first_letter": first_letter(reply.reasoning, reply.body),
        "finish_reason": reply.finish_reason,
        "completion_tokens": reply.completion_tokens,
        "body": reply.body,
        "reasoning": reply.reasoning,
    }


def _right(rows: Sequence[dict[str, Any]]) -> int:
    return sum(row["last_letter"] == row["gold"] for row in rows)


def last_letter(body: str) -> str | None:
    """Extractor `last-letter`: the last `(X)` of the body, thoughts removed; None if it has no letter."""
    return last_bracketed(LETTERS, without_thoughts(body))


def first_letter(reasoning: str, body: str) -> str | None:
    """Extractor `first-letter`: the first `(X)` anywhere. Kept to diagnose the trap, never as a result."""
    found = bracketed(LETTERS).search(reasoning + "\n" + body)
    return found.group(1) if found else None
