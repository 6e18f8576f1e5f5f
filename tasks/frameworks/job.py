"""What the node runner and a framework's adapter tell each other: one job in, one result out, as JSON files.

Standard library only: both sides import it, in different environments.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal


@dataclass(frozen=True)
class Item:
    """One prepared item: its record in the dataset's own shape, with everything that was random settled.

    `record` has the dataset's own field names. `gold` is the answer letter ("" where there is none). `choices` are the
    options in the order in which they are to be shown; empty where the question has them in its text, or has none.
    `question` is the text that asks; with `plain` jobs it is the whole user message.
    """

    item_id: str
    question: str
    choices: tuple[str, ...]
    gold: str
    category: str
    record: dict[str, Any]


@dataclass(frozen=True)
class Job:
    """Ask items of a suite (`ask`), or score answers that are already there (`grade`, no engine needed).

    `base_url` is the tape's and ends in /v1. Sampling, seed and thinking are the tape's business: what the framework
    sends of them is overwritten. `plain`: send `question` as it is, without the framework's own template.
    `answers` (grade only) has the body of the answer by item id.
    """

    do: Literal["ask", "grade"]
    suite: str
    items: tuple[Item, ...]
    base_url: str
    model: str
    max_tokens: int
    concurrency: int
    plain: bool
    workdir: str
    answers: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Sample:
    """What the framework made of one item.

    `messages` are those that it sent, for pairing with the tape; `response` is the text that it graded. `extracted` and
    `correct` are its own reading by its own default scorer. `details` are named figures per item (IFEval: the
    instructions that were followed, strictly and loosely).
    """

    item_id: str
    messages: list[dict[str, str]]
    response: str
    extracted: str | None
    correct: bool | None
    details: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Score:
    """A figure that the framework itself reports, under the framework's own name of the metric."""

    metric: str
    value: float
    stderr: float | None
    n: int


@dataclass(frozen=True)
class Result:
    """Everything that a job brought, or why it failed: then `error` is one line and the rest is empty."""

    framework: str
    version: str
    samples: tuple[Sample, ...] = ()
    scores: tuple[Score, ...] = ()
    error: str | None = None


def write(path: Path, what: Job | Result) -> None:
    """Write as JSON; whoever reads sees all of it or nothing."""
    partial = path.with_suffix(".partial")
    partial.write_text(json.dumps(asdict(what), ensure_ascii=False), encoding="utf-8")
    partial.replace(path)


def read_job(path: Path) -> Job:
    """A job as the runner wrote it."""
    said = json.loads(path.read_text(encoding="utf-8"))
    items = tuple(Item(**{**item, "choices": tuple(item["choices"])}) for item in said.pop("items"))
    return Job(**said, items=items)


def read_result(path: Path) -> Result:
    """A result as the adapter wrote it."""
    said = json.loads(path.read_text(encoding="utf-8"))
    samples = tuple(Sample(**sample) for sample in said.pop("samples"))
    scores = tuple(Score(**score) for score in said.pop("scores"))
    return Result(**said, samples=samples, scores=scores)
