"""Prompts: named workloads, one at a time and several at once; programs in their answers are run."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, field_validator
from pydantic_core import PydanticCustomError

from configs.cell import Cell
from configs.files.document import ConfigError, Loc
from configs.step import MeasuredStep, Work
from configs.workloads import Workload, from_lists, workloads_of

CONCURRENCY = " c="
"""Between workload and concurrency in a condition's name; no workload has a blank."""


class PromptsStep(MeasuredStep):
    """Each workload at each concurrency: so many copies of its prompt, sent together, timed until all are answered.

    Not streamed, greedy where the technique is, natural EOS with a cap. A repeat sends the same prompts again, so that
    repeats differ by nothing but the machine. Copies write the same tokens: what a mixture of experts does under a load
    of different prompts is the step `load`'s to say.
    """

    step: Literal["prompts"]
    workloads: tuple[Workload, ...] = Field(
        min_length=1, description="name of a file in workloads/, a path to one's own, or a list of them"
    )
    concurrencies: tuple[Annotated[int, Field(gt=0)], ...] = Field((1,), min_length=1)
    repeats: int = Field(3, gt=0, description="how often each engine start times each of them")
    warmup: int = Field(1, ge=0, description="untimed rounds before each of them, cut off where the shortest is")
    unfenced: bool = Field(
        False, description="run programs with limits only where the kernel can't fence them: a machine to throw away"
    )

    is_timed: ClassVar[bool] = True
    forecast_only: ClassVar[frozenset[str]] = frozenset({"workloads.answer_tokens"})

    @field_validator("workloads", mode="before")
    @classmethod
    def _from_name(cls, value: Any) -> Any:
        if not isinstance(value, str):
            return from_lists(value)
        try:
            return workloads_of(value)
        except ConfigError as error:  # one word for the type, and the text as an argument: pydantic formats it
            accepted = "a name or a file that can be read ({problem})"
            raise PydanticCustomError("workloads", accepted, {"problem": str(error)}) from error

    def named(self) -> Iterator[tuple[Loc, str]]:
        """Workloads and concurrencies: rows and verdicts are told apart by them."""
        for i, workload in enumerate(self.workloads):
            yield ("workloads", i, "name"), workload.name
        for i, number in enumerate(self.concurrencies):
            yield ("concurrencies", i), f"{CONCURRENCY}{number}"

    def problems(self) -> Iterator[tuple[Loc, str]]:
        """What is wrong with a workload."""
        for i, workload in enumerate(self.workloads):
            for loc, problem in workload.problems():
                yield ("workloads", i, *loc), problem

    def longest_requests(self, cell: Cell) -> Iterator[tuple[str, int]]:
        """Each workload's prompt and longest answer."""
        del cell
        for workload in self.workloads:
            yield f"workload {workload.name!r}", workload.longest_tokens

    def workload(self, cell: Cell) -> tuple[Work, ...]:
        """Per concurrency and workload: all repeats, and the warm-up."""
        del cell
        loads = []
        for number in self.concurrencies:
            for each in self.workloads:
                usual = min(each.answer_tokens or each.max_tokens, each.max_tokens)
                loads.append(Work(self.repeats * number, each.prompt_tokens, usual, number, each.max_tokens))
                if self.warmup:
                    cut = min(usual, self.warmup_tokens)
                    loads.append(Work(self.warmup * number, each.prompt_tokens, cut, number, self.warmup_tokens))
        return tuple(loads)

    @property
    def warmup_tokens(self) -> int:
        """Where answers of the warm-up are cut off: the least cap of all workloads."""
        return min(each.max_tokens for each in self.workloads)


def condition_name(workload: str, concurrency: int) -> str:
    """What a row is called: `code c=4`."""
    return f"{workload}{CONCURRENCY}{concurrency}"


def workload_of(condition: str) -> str:
    """The workload that a condition's name has."""
    return condition.rpartition(CONCURRENCY)[0]
