"""Toy: does the model answer a greeting?"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from pydantic import Field

from configs.cell import Cell
from configs.step import MeasuredStep, Work

PROMPT_TOKENS, OUTPUT_TOKENS = 8, 32


class ToyStep(MeasuredStep):
    """A few greetings, one after another."""

    step: Literal["toy"]
    greetings: int = Field(3, gt=0)

    def longest_requests(self, cell: Cell) -> Iterator[tuple[str, int]]:
        del cell
        yield "step 'toy'", PROMPT_TOKENS + OUTPUT_TOKENS

    def workload(self, cell: Cell) -> tuple[Work, ...]:
        """One short request per greeting."""
        del cell
        return (Work(self.greetings, PROMPT_TOKENS, OUTPUT_TOKENS),)
