"""Needle: is a sentence found again that is hidden in a long text?"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from configs.cell import Cell
from configs.files import Loc
from configs.step import MeasuredStep, Work, says_nothing

SHORTEST_TOKENS = 4096
"""The first of the lengths where a step names none; they double from there."""

LEAST_TOKENS = 256
"""No length is below this: the chat template, the needle and the question must leave room for a text."""

KIBI = 1024
"""Lengths are named in it, and the longest one where a step names none is a multiple of it."""


class NeedleStep(MeasuredStep):
    """A sentence with a number, hidden at several depths of texts of several lengths; the question is for it."""

    step: Literal["needle"]
    depths_percent: tuple[Annotated[int, Field(ge=0, le=100)], ...] = Field((10, 50, 90), min_length=1)
    context_tokens: tuple[Annotated[int, Field(ge=LEAST_TOKENS)], ...] | None = Field(
        None, min_length=1, description="whole prompts; none: 4096, 8192 ... and the longest that fits the cell"
    )
    seeds: int = Field(3, ge=3, description="texts per length and depth, each with a needle of its own")
    max_tokens: int = Field(4096, gt=0, description="longest answer, thinking included")
    answer_tokens: int = Field(512, gt=0, description="expected answer, for the forecast")
    concurrency: int = Field(4, gt=0)

    forecast_only: ClassVar[frozenset[str]] = frozenset({"answer_tokens"})

    def named(self) -> Iterator[tuple[Loc, str]]:
        """The names that distinguish rows: depths and lengths."""
        for i, depth in enumerate(self.depths_percent):
            yield ("depths_percent", i), f"{depth} %"
        for i, tokens in enumerate(self.context_tokens or ()):
            yield ("context_tokens", i), length_name(tokens)

    def lengths(self, cell: Cell) -> tuple[int, ...]:
        """The lengths that fit a cell together with an answer, shortest first."""
        room = cell.serving.max_model_len - self.max_tokens
        if self.context_tokens is not None:
            return tuple(sorted(tokens for tokens in self.context_tokens if tokens <= room))
        doubled = [SHORTEST_TOKENS]
        while 2 * doubled[-1] <= room:
            doubled.append(2 * doubled[-1])
        longest = room // KIBI * KIBI
        return tuple(tokens for tokens in dict.fromkeys((*doubled, longest)) if SHORTEST_TOKENS <= tokens <= room)

    def why_not(self, cell: Cell) -> str | None:
        """A cell that carries none of the lengths has nothing to be asked, dummy weights have nothing to answer."""
        if self.lengths(cell):
            return says_nothing(cell)
        asked = f"a text of {min(self.context_tokens or (SHORTEST_TOKENS,))} tokens and an answer of {self.max_tokens}"
        return f"max_model_len {cell.serving.max_model_len} has no room for {asked}"

    def longest_requests(self, cell: Cell) -> Iterator[tuple[str, int]]:
        """The longest text that fits, and its answer."""
        for tokens in self.lengths(cell)[-1:]:
            yield "step 'needle'", tokens + self.max_tokens

    def workload(self, cell: Cell) -> tuple[Work, ...]:
        """Per length: every depth and seed. Most of the work is reading the prompts."""
        requests = len(self.depths_percent) * self.seeds
        output_tokens = min(self.answer_tokens, self.max_tokens)
        return tuple(Work(requests, tokens, output_tokens, self.concurrency) for tokens in self.lengths(cell))


def length_name(tokens: int) -> str:
    """A length for people: `32k` for 32768, else the number."""
    return f"{tokens // KIBI}k" if tokens % KIBI == 0 else str(tokens)


def condition_name(tokens: int, depth_percent: int) -> str:
    """What a row is called: `32k 90 %`."""
    return f"{length_name(tokens)} {depth_percent} %"
