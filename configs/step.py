"""What every step is to those who plan it: where it fits, what it asks of the engine, what it must not be given.

A step is one file of its name in three rooms: `configs/steps/` (its spec), `tasks/steps/` (how it is measured) and
`warehouse/steps/` (its tables, its rows of the dataset, its sections of the report). CONTRIBUTING.md has the recipe.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from typing import ClassVar, NamedTuple

from configs.cell import Cell
from configs.files.document import Loc
from configs.frozen import Frozen


class Load(NamedTuple):
    """A part of a step's work: so many like requests, `concurrency` at a time. Tokens are those of one request."""

    requests: int
    prompt_tokens: int
    output_tokens: int
    concurrency: int = 1


class StepSpec(Frozen):
    """One measurement of a cell, as a suite names it."""

    step: str

    def named(self) -> Iterator[tuple[Loc, str]]:
        """Parts of it that need a name of their own: (where inside it, name)."""
        yield from ()

    def problems(self) -> Iterator[tuple[Loc, str]]:
        """What is wrong with the spec beyond its types: (where inside it, what, and what would be accepted)."""
        yield from ()

    def longest_requests(self, cell: Cell) -> Iterator[tuple[str, int]]:
        """What has to fit into the cell's context: (what sends it, prompt plus output tokens)."""
        del cell
        yield from ()

    def why_not(self, cell: Cell) -> str | None:
        """Why the step makes no sense for a cell; none: it does."""
        del cell
        return None


class MeasuredStep(StepSpec):
    """A step that this version can measure. One that does not say its workload can't be made: it would look free."""

    is_gate: ClassVar[bool] = False
    """Whether a cell that it rejects is measured no further."""

    is_timed: ClassVar[bool] = False
    """Whether it measures a speed, which a neighbour on the same machine would falsify."""

    @abstractmethod
    def workload(self, cell: Cell) -> tuple[Load, ...]:
        """All that it asks of the engine; the forecast makes seconds of it."""
