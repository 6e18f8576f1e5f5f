"""Smoke: a few items of each kind of work, before hours are spent."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field

from configs.cell import Cell
from configs.step import Load, MeasuredStep

OUTPUT_TOKENS = 64
"""Length of a smoke generation: long enough for a loop or a dead draft to show."""

PROMPT_TOKENS = 32
"""Length of a smoke prompt as the forecast takes it."""


class SmokeStep(MeasuredStep):
    """A few items (five, unless the suite says otherwise) of each other step of the cell."""

    step: Literal["smoke"]
    items: int = Field(5, gt=0)

    is_gate: ClassVar[bool] = True

    def workload(self, cell: Cell) -> tuple[Load, ...]:
        """One short generation per item, one at a time."""
        del cell
        return (Load(self.items, PROMPT_TOKENS, OUTPUT_TOKENS),)
