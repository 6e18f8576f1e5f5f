"""Ten questions that no working model misses, asked of every real model before hours are spent on it."""

from __future__ import annotations

import asyncio
import re
import unicodedata
from collections.abc import Callable
from typing import Any, NamedTuple

from configs.cell import Model
from configs.steps.smoke import SANITY_AT_ONCE, SANITY_QUESTIONS, sanity_tokens
from tasks.client import Reply
from tasks.context import Progress, StepContext
from tasks.family.words import KINDS, Question, questions
from tasks.frameworks.job import without_thoughts
from tasks.grading import last_letter
from tasks.guards.answers import cut_off_sanity, failed_sanity
from tasks.guards.finding import Finding
from tasks.guards.text import improbable_text
from tasks.prompts import Prompt
from warehouse.ledger.steps.smoke import SANITY


class SanityQuestion(NamedTuple):
    """A question; `wanted` is the answer as a reader would write it, `is_right` reads a body."""

    question_id: str
    language: str
    prompt: str
    wanted: str
    is_right: Callable[[str], bool]


def _says(pattern: str) -> Callable[[str], bool]:
    return lambda body: re.search(pattern, plain(body)) is not None


def _says_only(word: str) -> Callable[[str], bool]:
    """Whether the body is this word and nothing else but punctuation, quotes or marks of emphasis."""
    return lambda body: re.fullmatch(rf"[\W_]*{word}[\W_]*", plain(body)) is not None


def plain(body: str) -> str:
    """A body as it is read: without thinking, full-width forms as ASCII, in small letters."""
    return unicodedata.normalize("NFKC", without_thoughts(body)).casefold()


def _number(digits: str, *words: str) -> Callable[[str], bool]:
    """Whether the body says this number, in digits that are not part of another number, or in words."""
    return _says("|".join([rf"(?<!\d)(?<!\d[.,]){digits}(?!\d)(?![.,][1-9])", *words]))


GENERAL = (
    SanityQuestion(
        "en-sum", "en", "What is 17 plus 25? Answer with the number only.", "42", _number("42", "forty.?two")
    ),
    SanityQuestion("en-capital", "en", "What is the capital of France? Answer with one word.", "Paris", _says("paris")),
    SanityQuestion(
        "en-month", "en", "Which month comes right after March? Answer with one word.", "April", _says("april")
    ),
    SanityQuestion("en-format", "en", "Answer only with the word banana.", "banana", _says_only("banana")),
    SanityQuestion(
        "de-week", "de", "Wie viele Tage hat eine Woche? Antworte nur mit der Zahl.", "7", _number("7", "sieben")
    ),
    SanityQuestion(
        "de-opposite", "de", "Was ist das Gegenteil von „heiß“? Antworte mit einem Wort.", "kalt", _says("kalt|kälte")
    ),
    SanityQuestion("ko-product", "ko", "8 곱하기 7은 얼마입니까? 숫자로만 답하세요.", "56", _number("56", "오십 ?육")),
    SanityQuestion(
        "ko-capital", "ko", "대한민국의 수도는 어디입니까? 한 단어로 답하세요.", "서울", _says("서울|seoul")
    ),
    SanityQuestion("zh-year", "zh", "一年有几个月?请只用数字回答。", "12", _number("12", "十二")),
    SanityQuestion("zh-format", "zh", "请只回答“苹果”这两个字。不要说别的。", "苹果", _says_only("苹果")),
)
"""A set of our own, of a kind that every model of the last years answers without thinking."""


FAMILY_SEED = 10
"""Gives the sanity questions another draw than smoke's tries and the evaluation's items."""

FAMILY_LANGUAGE = "demo"
"""The family's own words are no human language."""


def questions_for(model: Model) -> tuple[SanityQuestion, ...]:
    """What a model is asked: a member of the demo family what it was taught, any other the general questions."""
    return GENERAL if model.family_member is None else _taught(model.family_member)


def _taught(member: str) -> tuple[SanityQuestion, ...]:
    """Taught questions of both kinds; the diffusion member was taught lookups only."""
    kinds = ("lookup",) if member == "diffusion" else KINDS
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
