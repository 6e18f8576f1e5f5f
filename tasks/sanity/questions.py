"""Which ten questions a model is asked: the general ones, or what a member of the demo family was taught."""

from __future__ import annotations

from configs.cell import Model
from configs.steps.smoke import SANITY_QUESTIONS
from tasks.family.words import KINDS, Question, questions
from tasks.grading import last_letter
from tasks.sanity.general import GENERAL, SanityQuestion

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
