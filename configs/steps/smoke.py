"""Smoke: ten questions that no working model misses, and a few items of each kind of work, before hours are spent."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field

from configs.cell import Cell
from configs.step import MeasuredStep, Work

OUTPUT_TOKENS = 64
"""Length of a smoke generation: long enough for a loop or a dead draft to show."""

PROMPT_TOKENS = 32
"""Length of a smoke prompt as the forecast takes it, and of a sanity question."""

SANITY_QUESTIONS = 10
"""Asked of every real model: enough to tell a broken model from an unlucky one, cheap beside an engine's start."""

SANITY_AT_ONCE = 4
"""Sanity questions in flight; nothing is timed."""

SANITY_USUAL_TOKENS = 300
"""An answer with its thinking, as the forecast takes it (our assumption); without thinking it is ten."""


def has_sanity(cell: Cell) -> bool:
    """Whether a cell is asked the sanity questions: dummy weights have no answers."""
    return cell.model.weights == "real"


def sanity_tokens(cell: Cell) -> int:
    """The most tokens of one answer to a sanity question, within the cell's context."""
    if cell.model.family_member is not None:
        return 64  # the demo family says at most 20 tokens to a question
    if not cell.model.chat:
        return 16  # a base model never ends, and what it is asked for comes first
    room = cell.serving.max_model_len - 128  # the question and the chat template around it
    return max(OUTPUT_TOKENS, min(2048, room))  # a model that thinks longer about 17 plus 25 is not sane at any price


class SmokeStep(MeasuredStep):
    """Ten questions, and a few items (five, unless the suite says otherwise) of each other step of the cell."""

    step: Literal["smoke"]
    items: int = Field(5, gt=0)

    is_gate: ClassVar[bool] = True

    def workload(self, cell: Cell) -> tuple[Work, ...]:
        """The sanity questions, a few at a time, and one short generation per item, one at a time."""
        generations = Work(self.items, PROMPT_TOKENS, OUTPUT_TOKENS)
        if not has_sanity(cell):
            return (generations,)
        most = sanity_tokens(cell)
        usual = min(SANITY_USUAL_TOKENS, most)
        return (Work(SANITY_QUESTIONS, PROMPT_TOKENS, usual, SANITY_AT_ONCE, most), generations)
