"""Smoke: a few items of each kind of work, before hours are spent."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field

from configs.cell import Cell
from configs.step import Load, MeasuredStep

OUTPUT_TOKENS = 64
"""Length of a smoke generation: long enough for a loop or a dead draft to show."""

PROMPT_TOKENS = 32
"""Length of a smoke prompt, for the forecast."""


class SmokeStep(MeasuredStep):
    """Five items and one short generation, before hours are spent."""

    step: Literal["smoke"]
    items: int = Field(5, gt=0)

    is_gate: ClassVar[bool] = True

    def workload(self, cell: Cell) -> tuple[Load, ...]:
        """So many short generations, one at a time."""
        del cell
        return (Load(self.items, PROMPT_TOKENS, OUTPUT_TOKENS),)
