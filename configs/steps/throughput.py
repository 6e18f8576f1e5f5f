"""Throughput: non-streaming tokens per second under a list of load shapes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar, Literal, Self

from pydantic import Field, field_validator, model_serializer, model_validator
from pydantic_core import PydanticCustomError

from configs.cell import Cell
from configs.files import Loc
from configs.frozen import Frozen, Grown
from configs.step import PromptedStep, Work

STEADY_ROUNDS = 4
"""Requests per slot that several in flight need. The first and the last are ramp and tail and not timed as steady, so
the timed part is half of the window or more."""


NATURAL = "natural"
"""Mode of rows whose answers end by themselves; that of rows with answers of exactly the length asked for is fixed."""

PREFILL_TRIES = 3
"""Probes of the prefill next to a stream. The least of them counts: the first request of a shape may compile (on an
H200 a JIT took 380 ms against a TTFT of 37 ms, 2026-11)."""

WARM_UP_LENGTHS = 4
"""Prompts of which a warm-up wants no more than the first token: of a kind of length the first may wait for a kernel.
The first with an odd number of tokens waited 0.9 to 1.3 s of 2.6 s (8k on two H200s)."""


class Repeats(Frozen):
    """How often a start repeats a condition: a number, kept as one, or until its rate is known `within` a share.

    Then it is also repeated while its repeats differ by more than `CV_BOUND` of `tasks.guards.steadiness`.
    """

    min: int = Field(gt=0)
    max: int = Field(gt=0)
    within: float | None = Field(None, gt=0, lt=1, description="half-width of the 95 % interval; none: `min` is `max`")

    @model_validator(mode="before")
    @classmethod
    def _from_number(cls, value: Any) -> Any:
        if isinstance(value, int) and not isinstance(value, bool) and value > 0:
            return {"min": value, "max": value}
        if isinstance(value, dict | Repeats):
            return value
        raise _refused("a whole number from 1, or {min: 3, max: 15, within: 2%}")

    @field_validator("within", mode="before")
    @classmethod
    def _from_percent(cls, value: Any) -> Any:
        try:
            share = float(value.removesuffix("%")) / 100 if isinstance(value, str) and value[-1:] == "%" else value
        except ValueError:
            share = value
        if share is None or (isinstance(share, int | float) and 0 < share < 1):
            return share
        raise _refused("a share of the rate, as 2% or 0.02")

    @model_validator(mode="after")
    def _is_a_range(self) -> Self:
        if self.within is None and self.min != self.max:
            raise _refused("`within` beside `min` and `max`, as 2%, or one whole number")
        if self.within is not None and not 2 <= self.min <= self.max:
            raise _refused("`min` from 2, which an interval needs, up to `max`")
        return self

    @model_serializer
    def _as_written(self) -> int | dict[str, int | float]:
        return self.min if self.within is None else {"min": self.min, "max": self.max, "within": self.within}

    @property
    def expected(self) -> int:
        """As many as the forecast takes: the middle of the fewest and the most."""
        return (self.min + self.max) // 2

    def __str__(self) -> str:
        return str(self.min) if self.within is None else f"{self.min} to {self.max}"


def _refused(accepted: str) -> PydanticCustomError:
    # one word for the type, and the text as an argument: pydantic formats the template
    return PydanticCustomError("repeats", "{accepted}", {"accepted": accepted})


class Condition(Grown):
    """One load shape of the throughput step. `output_tokens` are produced exactly (`ignore_eos`).

    With `natural` it is measured once more, with other prompts whose answers end by themselves: another workload, maybe
    some times as fast, with rows of its own.
    """

    name: str
    context_tokens: int = Field(gt=0)
    output_tokens: int = Field(gt=0)
    concurrency: int = Field(1, gt=0)
    requests: int = Field(1, gt=0, description="timed requests per repeat; several in flight need four each")
    repeats: Repeats = Repeats.model_validate(5)
    warmup: int = Field(1, ge=0, description="untimed requests of the same shape before the first repeat")
    stream_requests: int = Field(3, ge=0, description="streamed requests for TTFT and TPOT; 0 skips them")
    natural: bool = Field(False, description="measure answers that end by themselves, too, as rows of their own")

    later: ClassVar[frozenset[str]] = frozenset({"natural"})

    @property
    def modes(self) -> tuple[str, ...]:
        """Of its windows that are not streamed, in the order in which they are measured."""
        return ("fixed", NATURAL) if self.natural else ("fixed",)

    @property
    def streams(self) -> int:
        """Streamed requests that are sent: several in flight need a steady state, too; those before it aren't timed."""
        if not self.stream_requests or self.concurrency == 1:
            return self.stream_requests
        return max(self.stream_requests, STEADY_ROUNDS * self.concurrency)


class ThroughputStep(PromptedStep):
    """Non-streaming completion tokens over wall clock, fixed output length, prompts that never repeat."""

    step: Literal["throughput"]
    conditions: tuple[Condition, ...] = Field(min_length=1)

    is_timed: ClassVar[bool] = True

    def named(self) -> Iterator[tuple[Loc, str]]:
        """The names that distinguish rows and verdicts: those of the conditions."""
        for j, one in enumerate(self.conditions):
            yield ("conditions", j, "name"), one.name

    def problems(self) -> Iterator[tuple[Loc, str]]:
        """Conditions without a decoding step, or with too few requests for the steady state of their concurrency."""
        yield from super().problems()
        for j, one in enumerate(self.conditions):
            if one.output_tokens < 2:
                yield ("conditions", j, "output_tokens"), "one token is all prefill; accepted: 2 or more"
            enough = STEADY_ROUNDS * one.concurrency
            if one.concurrency > 1 and one.requests < enough:
                problem = f"{one.requests} requests have no steady state of {one.concurrency} at a time"
                yield ("conditions", j, "requests"), f"{problem}; accepted: {enough} or more"

    def longest_requests(self, cell: Cell) -> Iterator[tuple[str, int]]:
        """Each condition's prompt and output."""
        for one in self.conditions:
            yield f"condition {one.name!r}", one.context_tokens + one.output_tokens

    def workload(self, cell: Cell) -> tuple[Work, ...]:
        """Per condition: timed requests (natural answers as long as may be), warm-up, streams, probes of one token."""
        loads: list[Work] = []
        for one in self.conditions:
            at_once = one.concurrency
            timed = max(one.requests, at_once) * one.repeats.expected
            probes = (PREFILL_TRIES * at_once if one.streams else 0) + (WARM_UP_LENGTHS if one.warmup else 0)
            asked = [*(timed for _ in one.modes), one.warmup * at_once, one.streams]
            loads += [Work(requests, one.context_tokens, one.output_tokens, at_once) for requests in asked if requests]
            loads += [Work(probes, one.context_tokens, 1, at_once)] if probes else []
        return tuple(loads)
