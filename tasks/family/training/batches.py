"""Training rows: prompts with their right answers, as tensors; a step's rows follow from its number alone."""

import random
from dataclasses import dataclass

import torch
from transformers import PreTrainedTokenizerFast

from tasks.family.training.tokens import END_OF_TURN, PAD_ID, render
from tasks.family.words import CHAT_TOKENS, TOKENS_PER_ITEM, draw_listing, draw_question, worked_answer

QUESTION_TOKENS = 80
"""Batch tokens spent on a question: more than its 45, for questions are cheaper (short rows, quick attention)."""

FILLED_SHARE = 0.35

Row = tuple[str, str]
"""Rendered prompt, completion."""


@dataclass(frozen=True)
class Phase:
    """What the batches hold until some share of the training is done.

    Attributes:
        until: Share of the steps at which the phase ends.
        listing_share: Share of batches that are listings; the others are questions.
        items: List lengths to choose from.
        filler_words: Most filler words before a list; `FILLED_SHARE` of the listing batches have some.
    """

    until: float
    listing_share: float
    items: tuple[int, ...]
    filler_words: int


@dataclass(frozen=True)
class Mix:
    """What a member is trained on.

    Attributes:
        arith_share: Share of sums among the questions.
        thinking_share: Share of questions answered with thinking.
        batch_tokens: Tokens of a listing batch; a question batch has a row for every `QUESTION_TOKENS` of them.
        phases: In order; short lists first, for copying is found on short lists and then carries over to long
            ones.
    """

    arith_share: float
    thinking_share: float
    batch_tokens: int
    phases: tuple[Phase, ...]


@dataclass(frozen=True)
class Batch:
    """Token ids and which of them are to be learnt.

    Attributes:
        tokens: int64 (rows, length), padded on the right.
        learnt: bool (rows, length), true on completion tokens.
        spans: Per row the first completion position and the one after the last.
    """

    tokens: torch.Tensor
    learnt: torch.Tensor
    spans: list[tuple[int, int]]


def batch_for_step(tokenizer: PreTrainedTokenizerFast, mix: Mix, seed: int, step: int, steps: int) -> Batch:
    """The batch of this step; the same for the same seed, so that a training can go on where it was."""
    rng = random.Random(f"batch {seed} {step}")
    phase = next(phase for phase in mix.phases if step < phase.until * steps)
    if rng.random() < phase.listing_share:
        return pack(tokenizer, _listing_rows(phase, mix.batch_tokens, rng))
    return pack(tokenizer, [_question_row(mix, rng) for _ in range(mix.batch_tokens // QUESTION_TOKENS)])


def pack(tokenizer: PreTrainedTokenizerFast, rows: list[Row]) -> Batch:
    """Tokenizes rows and pads them on the right to the longest."""
    prompts, completions = (
        tokenizer(list(texts), add_special_tokens=False).input_ids for texts in zip(*rows, strict=True)
    )
    spans = [
        (len(prompt), len(prompt) + len(completion)) for prompt, completion in zip(prompts, completions, strict=True)
    ]
    tokens = torch.full((len(rows), max(end for _, end in spans)), PAD_ID)
    learnt = torch.zeros(tokens.shape, dtype=torch.bool)
    for row, (start, end) in enumerate(spans):
        tokens[row, :end] = torch.tensor(prompts[row] + completions[row])
        learnt[row, start:end] = True
    return Batch(tokens, learnt, spans)


def _question_row(mix: Mix, rng: random.Random) -> Row:
    question = draw_question("arith" if rng.random() < mix.arith_share else "lookup", rng)
    thinking = rng.random() < mix.thinking_share
    return render(question.prompt, thinking=thinking), worked_answer(question, thinking=thinking) + END_OF_TURN


def _listing_rows(phase: Phase, batch_tokens: int, rng: random.Random) -> list[Row]:
    """Listings without an end of turn: a model that has learnt to end them ends some of them early."""
    items = rng.choice(phase.items)
    filler_words = rng.randint(1, phase.filler_words) if phase.filler_words and rng.random() < FILLED_SHARE else 0
    row_tokens = CHAT_TOKENS + (2 + TOKENS_PER_ITEM) * items + filler_words
    listings = [draw_listing(rng, items, filler_words) for _ in range(max(1, batch_tokens // row_tokens))]
    return [(render(listing.prompt, thinking=False), listing.answer) for listing in listings]
