"""Load: a prompt suite with categories, streamed, so many requests at a time or so many a second."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, ClassVar, Literal, NamedTuple

from pydantic import Field

from configs.cell import Cell
from configs.evals.records import file_problems
from configs.files import Loc
from configs.frozen import Grown
from configs.prompt_suites import CATEGORIES, SPEED_BENCH, SUITE_SIZES, SuiteSize, size_of, suite_file
from configs.step import MeasuredStep, Work
from configs.steps.throughput import NATURAL, STEADY_ROUNDS, WARM_UP_LENGTHS

BETWEEN = ", "
"""Between load and category in a condition's name; no category has it."""

OPEN = "open"
"""Mode of rows of an open loop: their answers end by themselves, too, and their requests are sent at scheduled moments.
So their tokens per second are those of the schedule, and no speed."""

Arrival = Literal["poisson", "constant"]
"""How the moments of an open loop lie: with exponential gaps, as independent users come, or evenly."""


class Offered(NamedTuple):
    """One load: so many requests in flight (a closed loop), or so many a second whatever is in flight (an open one)."""

    concurrency: int | None = None
    rate_s: float | None = None
    arrival: Arrival | None = None

    @property
    def name(self) -> str:
        """What a row of the whole suite is called: `load c=4`, `load 2/s`, `load 2/s constant`."""
        if self.rate_s is None:
            return f"load c={self.concurrency}"
        return f"load {self.rate_s:g}/s" + (" constant" if self.arrival == "constant" else "")

    @property
    def mode(self) -> str:
        """Of its rows."""
        return NATURAL if self.rate_s is None else OPEN

    @property
    def warmed_at_once(self) -> int:
        """Requests at a time before it: the engine of an open loop is warm after one."""
        return self.concurrency or 1


class Limits(Grown):
    """What a request must keep to count for goodput; at least one of them."""

    ttft_ms: float | None = Field(None, gt=0)
    tpot_ms: float | None = Field(None, gt=0)
    e2e_s: float | None = Field(None, gt=0, description="to the last byte")

    later: ClassVar[frozenset[str]] = frozenset({"e2e_s"})


class LoadStep(MeasuredStep, Grown):
    """Every prompt of a suite, its first turn, under each load: streamed, natural EOS, greedy where the technique is.

    At each concurrency in a closed loop: an answer is followed by the next request at once. At each rate in an open
    one: requests are sent at moments that no answer changes, made before the clock from a seed. One request at a time,
    a category is counted by itself, else the whole suite. A load that a lost machine had begun is measured again.
    """

    step: Literal["load"]
    dataset: str = Field(SPEED_BENCH, description="speed-bench, ours, twin, or a file with `category` and `turns`")
    revision: str | None = Field(None, description="commit of the hub's dataset; none: the pinned one")
    requests_per_category: int | None = Field(None, gt=0, description="the first so many; none: all")
    rates: tuple[Annotated[float, Field(gt=0)], ...] = Field((), description="requests per second")
    concurrencies: tuple[Annotated[int, Field(gt=0)], ...] = Field(
        default_factory=lambda named: () if named.get("rates") else (1, 2, 4, 8, 16),
        description="requests in flight; beside `rates` none, unless named",
    )
    arrival: Arrival = Field("poisson", description="of `rates`: exponential gaps, or even ones")
    max_tokens: int = Field(4096, ge=2, description="cap of an answer, which otherwise ends by itself")
    warmup: int = Field(1, ge=0, description="untimed requests per slot before each concurrency, or before each rate")
    limits: Limits | None = Field(None, description="for goodput; none: no goodput")
    answer_tokens: int | None = Field(None, gt=0, description="expected answer, for the forecast; none: the suite's")

    forecast_only: ClassVar[frozenset[str]] = frozenset({"answer_tokens"})
    is_timed: ClassVar[bool] = True
    later: ClassVar[frozenset[str]] = frozenset({"rates", "arrival"})

    @property
    def loads(self) -> tuple[Offered, ...]:
        """All of them, in the order in which they are measured."""
        closed = [Offered(concurrency=number) for number in self.concurrencies]
        return (*closed, *(Offered(rate_s=rate, arrival=self.arrival) for rate in self.rates))

    def named(self) -> Iterator[tuple[Loc, str]]:
        """The names that distinguish rows and verdicts: those of the loads."""
        for number, load in enumerate(self.loads):
            beyond = number - len(self.concurrencies)
            yield ("concurrencies", number) if beyond < 0 else ("rates", beyond), load.name

    def problems(self) -> Iterator[tuple[Loc, str]]:
        """No such dataset, no load, limits that limit nothing, and concurrencies without a steady state."""
        file = self.dataset_file
        wrong = [] if file is None else [*file_problems(self.dataset, file, [*SUITE_SIZES])]
        yield from wrong
        if not self.loads:
            yield ("concurrencies",), "no load at all; accepted: a concurrency, a rate (`rates`) or some of both"
        if self.limits is not None and not any(dict(self.limits).values()):
            yield ("limits",), "limits nothing; accepted: ttft_ms, tpot_ms, e2e_s or several"
        for i, number in enumerate([] if wrong else self.concurrencies):
            if number > 1 and self.requests < STEADY_ROUNDS * number:
                problem = f"{self.requests} requests have no steady state of {number} at a time"
                yield ("concurrencies", i), f"{problem}; accepted: up to {max(1, self.requests // STEADY_ROUNDS)}"

    @property
    def dataset_file(self) -> Path | None:
        """The user's file; a relative path is relative to the checkout, which is what nodes get."""
        return suite_file(self.dataset)

    @property
    def shape(self) -> SuiteSize:
        """Of the suite, or of the user's file; one that is gone is taken to be as SPEED-Bench is."""
        file = self.dataset_file
        if file is not None and file.is_file():
            return size_of(file).size
        return SUITE_SIZES.get(self.dataset, SUITE_SIZES[SPEED_BENCH])

    @property
    def requests(self) -> int:
        """Requests under each load."""
        file, wanted = self.dataset_file, self.requests_per_category
        there = [self.shape.per_category] * len(CATEGORIES)
        if file is not None and file.is_file():
            there = [*size_of(file).categories.values()]
        return sum(min(wanted or number, number) for number in there)

    def longest_requests(self, cell: Cell) -> Iterator[tuple[str, int]]:
        """The longest prompt and the longest answer allowed."""
        yield f"step {self.step!r}", self.shape.longest_prompt_tokens + self.max_tokens

    def workload(self, cell: Cell) -> tuple[Work, ...]:
        """Per load: every prompt, with an answer of the usual length on average, and the warm-up."""
        prompt_tokens = self.shape.prompt_tokens
        usual = min(self.answer_tokens or self.shape.answer_tokens, self.max_tokens)
        found = [Work(WARM_UP_LENGTHS, prompt_tokens, 1)] if self.warmup else []
        for load in self.loads:
            requests = self.requests + self.warmup * load.warmed_at_once
            at_once = load.concurrency or self.requests  # of a schedule all may be in flight
            found.append(Work(requests, prompt_tokens, usual, at_once, self.max_tokens, load.rate_s))
        return tuple(found)


def with_category(whole: str, category: str | None) -> str:
    """What a row of one category is called: `load c=4, coding`; of the whole suite, with None: as the load is."""
    return whole if category is None else f"{whole}{BETWEEN}{category}"


def whole_of(condition: str) -> str:
    """The name of the load that a condition is of: `load c=4` of `load c=4, coding`."""
    return condition.partition(BETWEEN)[0]


def category_of(condition: str) -> str | None:
    """The category that a condition's name has; None: it is of the whole suite."""
    return condition.partition(BETWEEN)[2] or None
