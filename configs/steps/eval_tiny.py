"""Eval-tiny: the demo family's own multiple-choice task."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from configs.cell import Cell
from configs.step import MeasuredStep, Work, answers_nothing


class EvalTinyStep(MeasuredStep):
    """The demo family's own multiple-choice task, thinking on, graded on the last letter of the body."""

    step: Literal["eval-tiny"]
    items: int = Field(48, gt=0)
    seed: int = 0
    kind: Literal["lookup", "arith"] | None = Field(None, description="questions of this kind only; none: both in turn")
    concurrency: int = Field(4, gt=0)
    max_tokens: int = Field(64, gt=0)

    def why_not(self, cell: Cell) -> str | None:
        """Dummy weights have no score, and a base model no answer to a chat."""
        return answers_nothing(cell)

    def workload(self, cell: Cell) -> tuple[Work, ...]:
        """Every question once, with the longest answer allowed."""
        prompt_tokens = self.max_tokens - self.max_tokens // 2  # so that the cache is, on average, as long as an answer
        return (Work(self.items, prompt_tokens, self.max_tokens, self.concurrency),)
