"""Every evaluation of the table: which items, how they are sampled, and what the result must be able to show."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, ClassVar

from pydantic import Field

from configs.cell import Cell
from configs.checkout import ROOT
from configs.evals.records import file_problems, records_in
from configs.evals.suites import EVALUATIONS, EvalName, Evaluation, Framework, SuiteFacts
from configs.files import Loc
from configs.step import MeasuredStep, Work, answers_nothing

HUB, TWIN = "hub", "twin"
"""Values of `dataset` that name no file: the suite's own items; a copy of their shape that the demo family knows."""

TWIN_ITEMS = 192
"""Items of a twin."""

MOST_AT_ONCE = 256
"""Requests in flight where a step names no concurrency and the KV cache would carry more: vLLM's own default limit."""


class EvalStep(MeasuredStep):
    """One suite through one framework, thinking on."""

    step: EvalName
    items: int | None = Field(None, gt=0, description="how many, drawn with `seed`; none: all")
    samples: int = Field(1, gt=0, le=64, description="answers per item, each with a seed of its own")
    seed: int = Field(0, ge=0, description="draws the items; sample i of an item is asked for with seed + i")
    dataset: str = Field(HUB, description="hub, twin, or a file in the dataset's shape: .jsonl .json .csv .parquet")
    revision: str | None = Field(None, description="commit of the hub's dataset; none: the suite's")
    max_tokens: int = Field(32768, gt=0)
    temperature: float = Field(0.6, ge=0)
    top_p: float = Field(0.95, gt=0, le=1)
    concurrency: int | None = Field(None, gt=0, description="none: as many as the KV cache carries")
    answer_tokens: int | None = Field(None, gt=0, description="expected answer, for the forecast; none: the suite's")
    margin: float = Field(0.05, gt=0, lt=1, description="loss of score that still counts as none")
    discordance: float = Field(0.15, gt=0, lt=1, description="share of items on which two arms will differ, for power")
    looks: tuple[Annotated[float, Field(ge=1, le=1)]] = Field((1.0,), description="once, at its end; kept for plans")

    forecast_only: ClassVar[frozenset[str]] = frozenset({"answer_tokens", "discordance"})

    @property
    def evaluation(self) -> Evaluation:
        """Its entry of the table."""
        return EVALUATIONS[self.step]

    @property
    def suite(self) -> SuiteFacts:
        """Whose items."""
        return self.evaluation.suite

    @property
    def framework(self) -> Framework:
        """Who asks and scores."""
        return self.evaluation.framework

    @property
    def items_there(self) -> int:
        """How many there are to draw from; the suite's figure for a file elsewhere. Raises `DatasetUnavailable`."""
        if self.dataset == TWIN:
            return TWIN_ITEMS
        file = self.dataset_file
        return self.suite.items if file is None or not file.is_file() else records_in(file)

    @property
    def n_items(self) -> int:
        """How many items are asked for; of a file exactly as many as the suite's file says, or nothing is asked."""
        if self.items is not None and self.dataset_file is not None:
            return self.items
        return min(self.items or self.items_there, self.items_there)

    @property
    def expected_tokens(self) -> int:
        """Tokens of one answer, thinking included, as the forecast takes it."""
        return min(self.answer_tokens or self.suite.answer_tokens, self.max_tokens)

    @property
    def dataset_file(self) -> Path | None:
        """The user's file; a relative path is relative to the checkout, which is what nodes get."""
        return None if self.dataset in (HUB, TWIN) else ROOT / Path(self.dataset).expanduser()

    def problems(self) -> Iterator[tuple[Loc, str]]:
        """A file that can't be read as a dataset, or has too few items."""
        file = self.dataset_file
        if file is None:
            return
        problems = [*file_problems(self.dataset, file, [HUB, TWIN])]
        yield from problems
        if not problems and self.items is not None and self.items > (there := records_in(file)):
            yield ("items",), f"{self.items}, but {self.dataset!r} has {there}; accepted: 1 to {there}, or none for all"

    def why_not(self, cell: Cell) -> str | None:
        """Dummy weights have no score, and a base model no answer to a chat."""
        return answers_nothing(cell)

    def longest_requests(self, cell: Cell) -> Iterator[tuple[str, int]]:
        """The longest prompt and the longest answer allowed; a twin's prompts are all of one length."""
        prompt_tokens = self.suite.prompt_tokens if self.dataset == TWIN else self.suite.longest_prompt_tokens
        yield f"step {self.step!r}", prompt_tokens + self.max_tokens

    def workload(self, cell: Cell) -> tuple[Work, ...]:
        """Every item, as often as it has samples, with answers of the expected length on average."""
        answers, at_once = self.n_items * self.samples, self.concurrency or MOST_AT_ONCE
        return (Work(answers, self.suite.prompt_tokens, self.expected_tokens, at_once, self.max_tokens),)

    def trial(self, cell: Cell, items: int) -> tuple[Work, ...]:
        """The first items, all at a time, each with an answer of the expected length."""
        return (Work(items, self.suite.prompt_tokens, self.expected_tokens, items),)
