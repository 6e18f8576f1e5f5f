"""The prompts that a load step sends: the same, in the same order, in every cell, start and attempt."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import zip_longest
from pathlib import Path
from typing import Any, Final, NamedTuple

from configs.evals.records import DatasetUnavailable, from_file
from configs.prompt_suites import (
    OURS,
    PLACEHOLDER,
    PREPARE,
    SPEED_BENCH,
    SPEED_BENCH_FACTS,
    SUITE_SIZES,
    TWIN,
    first_turn,
)
from configs.steps.load import BETWEEN, LoadStep
from tasks.evals.hub import fetched
from tasks.family import words
from tasks.prompts import Prompt, prompt_seed

LIST_TOKENS: Final = {
    "coding": 96, "humanities": 128, "multilingual": 160, "rag": 512, "roleplay": 112, "stem": 224,
    "summarization": 384, "writing": 144,
}  # fmt: skip
"""Categories that are lists, and the length of their prompts in tokens."""

QUESTION_KINDS: Final = {"math": "arith", "qa": "lookup", "reasoning": "arith"}  # categories that are questions
TWIN_REVISION: Final = "twin-1"  # raised when the prompts change


def twin_prompts(max_tokens: int) -> Iterator[tuple[str, Prompt]]:
    """Category and prompt, the categories in turn. A list is as long as the cap, at most as the family can count."""
    categories = sorted({*LIST_TOKENS, *QUESTION_KINDS})
    for number in range(SUITE_SIZES[TWIN].per_category):
        for category in categories:
            if category in QUESTION_KINDS:
                draw = random.Random(f"{TWIN_REVISION} {category} {number}")
                yield category, Prompt(words.draw_question(QUESTION_KINDS[category], draw).prompt)
            else:
                seed, tokens = prompt_seed(TWIN_REVISION, category, number), LIST_TOKENS[category]
                text = words.listing_prompt(seed, tokens, min(max_tokens, words.LONGEST_OUTPUT_TOKENS))
                yield category, Prompt(text, {"enable_thinking": words.LISTING_THINKING})


OURS_FILE = Path(__file__).with_name("ours.jsonl")  # our own prompts, in SPEED-Bench's shape
ID_DIGITS = 12  # hex digits of sha256 over a prompt that name it: rows tell prompts apart and don't spread their text

REPEATS = 4
"""Parts into which a category's prompts are dealt in turn, each a repeat of its condition. How much they differ says
what another draw of prompts, and the machine's unrest, would change."""


class SuitePrompt(NamedTuple):
    """One prompt of a suite, and the repeat that it belongs to."""

    prompt_id: str
    category: str
    prompt: Prompt
    repeat: int = 0


class PromptSuite(NamedTuple):
    """Prompts with the categories in turn, and what names their exact source."""

    prompts: tuple[SuitePrompt, ...]
    revision: str

    @property
    def categories(self) -> list[str]:
        """In alphabetical order."""
        return sorted({each.category for each in self.prompts})


def prompt_suite(spec: LoadStep, cache: Path, tell: Callable[[str], None]) -> PromptSuite:
    """The prompts of a step; fetched records are kept in `cache`, `tell` gets a line about what takes long.

    Raises DatasetUnavailable: one line that says what is missing or wrong, and what would be accepted.
    """
    if spec.dataset == TWIN:
        return _suite(spec, twin_prompts(spec.max_tokens), TWIN_REVISION, {})
    if spec.dataset == SPEED_BENCH:
        facts = SPEED_BENCH_FACTS
        found, commit = fetched(facts, spec.revision or facts.revision, "lm-eval", cache, tell)
        return _from_records(spec, [record for _, record in found], commit, facts.hub_id)
    records, revision = from_file(str(OURS_FILE) if spec.dataset == OURS else spec.dataset)
    return _from_records(spec, records, revision, f"dataset {spec.dataset!r}")


def _from_records(spec: LoadStep, records: Sequence[dict[str, Any]], revision: str, source: str) -> PromptSuite:
    """Prompts of records with `category` and `turns`, of which the first is asked; placeholders are missing ones."""
    missing: dict[str, int] = {}
    asked: list[tuple[str, Prompt]] = []
    for row, record in enumerate(records, 1):
        category, text = record.get("category"), first_turn(record)
        if not isinstance(category, str) or not category or BETWEEN in category or text is None:
            shape = "accepted: a `category` without a comma, and `turns`, a list of texts, or `prompt`, a text"
            raise DatasetUnavailable(f"{source}, row {row} is no prompt with a category; {shape}")
        if text.startswith(PLACEHOLDER):
            missing[category] = missing.get(category, 0) + 1
        else:
            asked.append((category, Prompt(text)))
    return _suite(spec, asked, revision, missing)


def _suite(spec: LoadStep, asked: Iterable[tuple[str, Prompt]], revision: str, missing: dict[str, int]) -> PromptSuite:
    by_category: dict[str, dict[str, SuitePrompt]] = {}
    for category, prompt in asked:
        name = f"{category}/{hashlib.sha256(prompt.text.encode()).hexdigest()[:ID_DIGITS]}"
        by_category.setdefault(category, {}).setdefault(name, SuitePrompt(name, category, prompt))
    _refuse_missing(spec, {category: len(found) for category, found in by_category.items()}, missing)
    chosen = [[*by_category[category].values()][: spec.requests_per_category] for category in sorted(by_category)]
    in_turn = ((number % REPEATS, each) for number, row in enumerate(zip_longest(*chosen)) for each in row if each)
    return PromptSuite(tuple(each._replace(repeat=repeat) for repeat, each in in_turn), revision)


def _refuse_missing(spec: LoadStep, there: dict[str, int], missing: dict[str, int]) -> None:
    """A category of which less is asked than of others would tell of other prompts than those of its name."""
    short = {category for category in missing if there.get(category, 0) < (spec.requests_per_category or 10**9)}
    if short:
        least = min(there.get(category, 0) for category in missing)
        fewer = f", or ask for at most {least} (`requests_per_category`)" if least else ""
        said = f"{sum(missing.values())} of {sum(missing.values()) + sum(there.values())} prompts of {spec.dataset!r}"
        raise DatasetUnavailable(
            f"{said} are placeholders that their owners let nobody copy ({', '.join(sorted(short))}): {PREPARE}{fewer}"
        )
    for category, number in there.items():
        if number < (spec.requests_per_category or 0):
            raise DatasetUnavailable(
                f"requests_per_category: {spec.requests_per_category}, but {spec.dataset!r} has {number} different "
                f"prompts of {category!r}; accepted: 1 to {min(there.values())}"
            )
