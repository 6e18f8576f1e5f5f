"""Depth: prompt processing and token generation at context depths, by llama-benchy's definitions.

`pp2048 @ d4096` is a prompt of 4096 + 2048 tokens up to the first token, `tg128 @ d4096` the 128 tokens behind it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, ClassVar, Literal, NamedTuple

from pydantic import Field

from configs.cell import Cell
from configs.files import Loc
from configs.step import PromptedStep, Work
from configs.steps.throughput import WARM_UP_LENGTHS, Repeats

PREFILL, DECODE = "prefill", "decode"
"""Modes of the two rows that a depth becomes."""


class DepthShape(NamedTuple):
    """One depth at one concurrency: what a run of it sends, and what its two rows are called."""

    depth_tokens: int
    pp_tokens: int
    tg_tokens: int
    concurrency: int

    @property
    def context_tokens(self) -> int:
        """Of the whole prompt."""
        return self.depth_tokens + self.pp_tokens

    @property
    def name(self) -> str:
        """Of a run, which has both parts."""
        return self._at(f"pp{self.pp_tokens}+tg{self.tg_tokens}")

    @property
    def prefill_name(self) -> str:
        """As llama-benchy writes it: `pp2048`, `pp2048 @ d4096`; with several in flight ours adds ` c=4`."""
        return self._at(f"pp{self.pp_tokens}")

    @property
    def decode_name(self) -> str:
        """The same of the tokens behind the first: `tg128 @ d4096`."""
        return self._at(f"tg{self.tg_tokens}")

    def _at(self, what: str) -> str:
        depth = f" @ d{self.depth_tokens}" if self.depth_tokens else ""
        return f"{what}{depth}" if self.concurrency == 1 else f"{what}{depth} c={self.concurrency}"


class DepthStep(PromptedStep):
    """Streamed requests of fixed length at every depth; a run is one batch of so many at once, every prompt its own."""

    step: Literal["depth"]
    depths: tuple[Annotated[int, Field(ge=0)], ...] = Field((0, 4096, 8192), min_length=1)
    pp_tokens: int = Field(2048, gt=0, description="of the prompt, behind the depth's")
    tg_tokens: int = Field(128, ge=2, description="generated, exactly")
    concurrencies: tuple[Annotated[int, Field(gt=0)], ...] = Field((1,), min_length=1)
    repeats: Repeats = Field(Repeats.model_validate(3), description="runs of a depth in a start; `within` is tg's")
    warmup: int = Field(1, ge=0, description="untimed runs of the same shape before the first one")
    peak_window_s: float = Field(1.0, gt=0, description="the peak is the most tokens in any window so long")

    is_timed: ClassVar[bool] = True

    def named(self) -> Iterator[tuple[Loc, str]]:
        """The names that distinguish rows and verdicts: depths and concurrencies."""
        for i, depth in enumerate(self.depths):
            yield ("depths", i), f"d{depth}"
        for i, number in enumerate(self.concurrencies):
            yield ("concurrencies", i), f"c={number}"

    def shapes(self) -> Iterator[DepthShape]:
        """Every depth at every concurrency, in the order in which they are measured."""
        for number in self.concurrencies:
            for depth in self.depths:
                yield DepthShape(depth, self.pp_tokens, self.tg_tokens, number)

    def longest_requests(self, cell: Cell) -> Iterator[tuple[str, int]]:
        """The deepest prompt, and what is generated behind it."""
        deepest = max(self.depths)
        yield f"depth {deepest}", deepest + self.pp_tokens + self.tg_tokens

    def workload(self, cell: Cell) -> tuple[Work, ...]:
        """Per depth and concurrency: warm-up and runs; of repeats that depend on what they show, the middle."""
        loads = []
        for shape in self.shapes():
            runs = (self.warmup + self.repeats.expected) * shape.concurrency
            loads.append(Work(runs, shape.context_tokens, shape.tg_tokens, shape.concurrency))
            if self.warmup:
                loads.append(Work(WARM_UP_LENGTHS, shape.context_tokens, 1))
        return tuple(loads)
