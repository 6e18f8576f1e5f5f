"""A small self-made twin of every suite: records in the dataset's own shape that the demo family can answer.

The family knows nothing but its own questions, with the options of each in their place (a colour's letter is its index
modulo 4). So a twin's records are drawn until the frozen order of the choices puts them there.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from itertools import permutations
from typing import Any, Final

from configs.evals.spec import TWIN_ITEMS
from configs.evals.suites import SuiteName
from tasks.evals.data.shapes import item_of
from tasks.family.words import KINDS, LETTERS, Question, draw_question

TWIN_REVISION = "twin-1"
"""Raised when the records below change: results of different revisions are not of the same items."""


def twin(suite: SuiteName) -> list[dict[str, Any]]:
    """All records of a suite's twin, the same on every machine."""
    rng = random.Random(f"twin {suite}")
    records: dict[str, dict[str, Any]] = {}
    while len(records) < TWIN_ITEMS:
        question = draw_question(KINDS[len(records) % len(KINDS)], rng)
        for record in _SHAPES[suite](question, len(records)):
            if item_of(suite, record, "", plain=True).question == question.prompt:
                records[question.item_id] = record
    return list(records.values())


def parts(question: Question) -> tuple[str, list[str]]:
    """What is asked, and the four options in order."""
    asked, options = question.prompt.split(" ? ")
    words = options.split()
    return f"{asked} ?", words[::2]


def _gpqa(question: Question, number: int) -> Iterator[dict[str, Any]]:
    """Every order of the wrong options: each gives another id, and so another order of the choices."""
    asked, options = parts(question)
    correct = options.pop(LETTERS.index(question.answer))
    for order in permutations(options):
        wrong = {f"Incorrect Answer {place}": option for place, option in enumerate(order, 1)}
        yield {"Question": asked, "Correct Answer": correct, **wrong, "High-level domain": question.kind}


def _mmlu_pro(question: Question, number: int) -> Iterator[dict[str, Any]]:
    asked, options = parts(question)
    right = LETTERS.index(question.answer)
    answer = {"answer": question.answer, "answer_index": right}
    yield {"question_id": number, "question": asked, "options": options, **answer, "category": question.kind}


def _ifeval(question: Question, number: int) -> Iterator[dict[str, Any]]:
    """Followed by `The answer is (C)`, and by no answer with another letter."""
    yield {
        "key": number,
        "prompt": question.prompt,
        "instruction_id_list": ["keywords:existence", "punctuation:no_comma"],
        "kwargs": [{"keywords": [rf"\({question.answer}\)"]}, {}],  # lm-eval takes a keyword as a pattern
    }


def _kmmlu(question: Question, number: int) -> Iterator[dict[str, Any]]:
    asked, options = parts(question)
    answer = LETTERS.index(question.answer) + 1
    yield {"question": asked, **dict(zip(LETTERS, options, strict=True)), "answer": answer, "Category": question.kind}


def _hae_rae(question: Question, number: int) -> Iterator[dict[str, Any]]:
    yield {"query": question.prompt, "answer": f"({question.answer})", "category": question.kind}


_SHAPES: Final[dict[SuiteName, Callable[[Question, int], Iterator[dict[str, Any]]]]] = {
    "gpqa": _gpqa,
    "mmlu-pro": _mmlu_pro,
    "ifeval": _ifeval,
    "hae-rae": _hae_rae,
    "kmmlu": _kmmlu,
}
