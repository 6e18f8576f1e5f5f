"""Parity: greedy outputs with the technique off, on and off again."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from pydantic import Field

from configs.cell import Cell
from configs.step import PromptedStep, Work, says_nothing


class ParityStep(PromptedStep):
    """Greedy outputs of the same prompts with the technique off, on and off again."""

    step: Literal["parity"]
    n_prompts: int = Field(12, gt=0)
    context_tokens: int = Field(64, gt=0)
    output_tokens: int = Field(400, gt=0)

    def why_not(self, cell: Cell) -> str | None:
        """A technique that only samples has no outputs that could be the same; dummy weights have none worth it."""
        if cell.technique.greedy:
            return says_nothing(cell)
        return f"{cell.technique.name} has no greedy decoding, so there are no outputs that could be the same"

    def longest_requests(self, cell: Cell) -> Iterator[tuple[str, int]]:
        """One prompt and its output; none for a technique that only samples."""
        if cell.technique.greedy:
            yield "step 'parity'", self.context_tokens + self.output_tokens

    def is_own_control(self, cell: Cell) -> bool:
        """Off and off again: the AR cell answers twice, every other cell once."""
        return cell.technique.is_baseline

    def workload(self, cell: Cell) -> tuple[Work, ...]:
        """Every prompt, one at a time."""
        return (Work(self.n_prompts, self.context_tokens, self.output_tokens),)
