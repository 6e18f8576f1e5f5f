"""Load: a prompt suite with categories, streamed at several concurrencies, answers that end by themselves."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from configs.cell import Cell
from configs.evals.records import file_problems, records_in
from configs.files.document import Loc
from configs.frozen import Frozen
from configs.prompt_suites import CATEGORIES, SHAPES, SPEED_BENCH, SuiteShape, suite_file
from configs.step import Load, MeasuredStep
from configs.steps.throughput import STEADY_ROUNDS

BETWEEN = ", "
"""Between concurrency and category in a condition's name; no category has it."""


class Limits(Frozen):
    """What a request must keep to count for goodput; at least one of the two."""

    ttft_ms: float | None = Field(None, gt=0)
    tpot_ms: float | None = Field(None, gt=0)


class LoadStep(MeasuredStep):
    """Every prompt of a suite at each concurrency, closed loop: an answer is followed by the next request at once.

    Natural EOS, streamed, greedy where the technique is. The first turn of a prompt is asked. One request at a time, a
    category is measured and stored at once, else the whole suite: what a lost machine had begun is measured again.
    """

    step: Literal["load"]
    dataset: str = Field(SPEED_BENCH, description="speed-bench, ours, twin, or a file with `category` and `turns`")
    revision: str | None = Field(None, description="commit of the hub's dataset; none: the pinned one")
    requests_per_category: int | None = Field(None, gt=0, description="the first so many; none: all")
    concurrencies: tuple[Annotated[int, Field(gt=0)], ...] = Field((1, 2, 4, 8, 16), min_length=1)
    max_tokens: int = Field(4096, ge=2, description="cap of an answer, which otherwise ends by itself")
    warmup: int = Field(1, ge=0, description="untimed requests per slot before each concurrency")
    limits: Limits | None = Field(None, description="for goodput; none: no goodput")
    answer_tokens: int | None = Field(None, gt=0, description="expected answer, for the forecast; none: the suite's")

    forecast_only: ClassVar[frozenset[str]] = frozenset({"answer_tokens"})
    is_timed: ClassVar[bool] = True

    def named(self) -> Iterator[tuple[Loc, str]]:
        """The concurrencies: rows and verdicts are told apart by them."""
        for i, number in enumerate(self.concurrencies):
            yield ("concurrencies", i), condition_name(number)

    def problems(self) -> Iterator[tuple[Loc, str]]:
        """No such dataset, limits that limit nothing, and concurrencies without a steady state."""
        file = self.dataset_file
        wrong = [] if file is None else [*file_problems(self.dataset, file, [*SHAPES])]
        yield from wrong
        if self.limits is not None and self.limits.ttft_ms is None and self.limits.tpot_ms is None:
            yield ("limits",), "limits nothing; accepted: ttft_ms, tpot_ms or both"
        for i, number in enumerate([] if wrong else self.concurrencies):
            if number > 1 and self.requests < STEADY_ROUNDS * number:
                problem = f"{self.requests} requests have no steady state of {number} at a time"
                yield ("concurrencies", i), f"{problem}; accepted: up to {max(1, self.requests // STEADY_ROUNDS)}"

    @property
    def dataset_file(self) -> Path | None:
        """The user's file; a relative path is relative to the checkout, which is what nodes get."""
        return suite_file(self.dataset)

    @property
    def shape(self) -> SuiteShape:
        """Of the suite; a user's file is taken to be as SPEED-Bench is."""
        return SHAPES.get(self.dataset, SHAPES[SPEED_BENCH])

    @property
    def requests(self) -> int:
        """Requests at each concurrency; of a user's file, whose categories nobody has read yet, at the most."""
        file, wanted = self.dataset_file, self.requests_per_category
        if file is not None and file.is_file():
            return records_in(file)
        return len(CATEGORIES) * min(wanted or self.shape.per_category, self.shape.per_category)

    def longest_requests(self, cell: Cell) -> Iterator[tuple[str, int]]:
        """The longest prompt and the longest answer allowed."""
        del cell
        yield f"step {self.step!r}", self.shape.longest_prompt_tokens + self.max_tokens

    def workload(self, cell: Cell) -> tuple[Load, ...]:
        """Per concurrency: every prompt, with an answer of the usual length on average, and the warm-up."""
        del cell
        prompt_tokens = self.shape.prompt_tokens
        usual = min(self.answer_tokens or self.shape.answer_tokens, self.max_tokens)
        return tuple(
            Load(self.requests + self.warmup * number, prompt_tokens, usual, number, self.max_tokens)
            for number in self.concurrencies
        )


def condition_name(concurrency: int, category: str | None = None) -> str:
    """What a row is called: `load c=4`; of one category, `load c=4, coding`."""
    whole = f"load c={concurrency}"
    return whole if category is None else f"{whole}{BETWEEN}{category}"


def category_of(condition: str) -> str | None:
    """The category that a condition's name has; None: it is of the whole suite."""
    return condition.partition(BETWEEN)[2] or None
