"""Throughput: non-streaming tokens per second under a list of load shapes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar, Literal

from pydantic import Field

from configs.cell import Cell
from configs.files.document import Loc
from configs.frozen import Frozen
from configs.step import Load, MeasuredStep


class Condition(Frozen):
    """One load shape of the throughput step. `output_tokens` are produced exactly (`ignore_eos`)."""

    name: str
    context_tokens: int = Field(gt=0)
    output_tokens: int = Field(gt=0)
    concurrency: int = Field(1, gt=0)
    requests: int = Field(1, gt=0, description="timed requests per repeat; at least `concurrency`")
    repeats: int = Field(5, gt=0)
    warmup: int = Field(1, ge=0, description="untimed requests of the same shape before the first repeat")
    stream_requests: int = Field(3, ge=0, description="streamed requests for TTFT and TPOT; 0 skips them")


class ThroughputStep(MeasuredStep):
    """Non-streaming completion tokens over wall clock, fixed output length, prompts that never repeat."""

    step: Literal["throughput"]
    prompts: str
    conditions: tuple[Condition, ...] = Field(min_length=1)

    is_timed: ClassVar[bool] = True

    def named(self) -> Iterator[tuple[Loc, str]]:
        """The conditions: rows and verdicts are told apart by their names."""
        for j, one in enumerate(self.conditions):
            yield ("conditions", j, "name"), one.name

    def problems(self) -> Iterator[tuple[Loc, str]]:
        """Conditions with fewer requests than would reach their concurrency."""
        for j, one in enumerate(self.conditions):
            if one.requests < one.concurrency:
                problem = f"{one.requests} requests can't be {one.concurrency} at a time"
                yield ("conditions", j, "requests"), f"{problem}; accepted: {one.concurrency} or more"

    def longest_requests(self, cell: Cell) -> Iterator[tuple[str, int]]:
        """Each condition's prompt and output."""
        del cell
        for one in self.conditions:
            yield f"condition {one.name!r}", one.context_tokens + one.output_tokens

    def workload(self, cell: Cell) -> tuple[Load, ...]:
        """Per condition: timed requests at its concurrency, then warm-up and streamed ones, one at a time."""
        del cell
        return tuple(load for one in self.conditions for load in _loads(one))


def _loads(one: Condition) -> tuple[Load, Load]:
    timed = Load(one.requests * one.repeats, one.context_tokens, one.output_tokens, one.concurrency)
    return timed, Load(one.warmup + one.stream_requests, one.context_tokens, one.output_tokens)
