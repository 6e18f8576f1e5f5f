"""A suite that the demo family can answer: the categories of SPEED-Bench in name only.

Each category asks one of the things that the family was taught, in lengths of its own, so that categories differ: a
list is annotated up to the cap, a question is answered in a few words and ends by itself.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Final

from configs.prompt_suites import SHAPES, TWIN
from tasks.family import words
from tasks.prompts import Prompt, prompt_seed

LIST_TOKENS: Final = {
    "coding": 96, "humanities": 128, "multilingual": 160, "rag": 512, "roleplay": 112, "stem": 224,
    "summarization": 384, "writing": 144,
}  # fmt: skip
"""Categories that are lists, and the length of their prompts in tokens."""

QUESTION_KINDS: Final = {"math": "arith", "qa": "lookup", "reasoning": "arith"}
"""Categories that are questions, and of which kind."""

TWIN_REVISION: Final = "twin-1"
"""Raised when the prompts change."""


def twin_prompts(max_tokens: int) -> Iterator[tuple[str, Prompt]]:
    """Category and prompt, all of them, the categories in turn.

    Args:
        max_tokens: cap of an answer; a list is as long as that, at most as the family can count.
    """
    categories = sorted({*LIST_TOKENS, *QUESTION_KINDS})
    for number in range(SHAPES[TWIN].per_category):
        for category in categories:
            yield category, _prompt(category, number, max_tokens)


def _prompt(category: str, number: int, max_tokens: int) -> Prompt:
    if category in QUESTION_KINDS:
        draw = random.Random(f"{TWIN_REVISION} {category} {number}")
        return Prompt(words.draw_question(QUESTION_KINDS[category], draw).prompt)
    output_tokens = min(max_tokens, words.LONGEST_OUTPUT_TOKENS)
    text = words.listing_prompt(prompt_seed(TWIN_REVISION, category, number), LIST_TOKENS[category], output_tokens)
    return Prompt(text, {"enable_thinking": words.LISTING_THINKING})
