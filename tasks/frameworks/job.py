"""What the node runner and a framework's adapter tell each other: one job in, one result out, as JSON files.

Both sides import it, in different environments: standard library only. An adapter gets jobs' paths on stdin, and says
`done <path>` when a result lies there. It stays alive, because importing a framework takes tens of seconds.
"""

from __future__ import annotations

import json
import os
import sys
import traceback
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Final, Literal

PACKAGES: Final = {"lm-eval": "lm-eval", "inspect": "inspect-ai", "hret": "haerae-evaluation-toolkit"}
"""The package whose version is the framework's version."""

LONGEST_ERROR = 500  # characters: an error is one line in a terminal; the traceback in the adapter's log has the rest


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
class Task:
    """What a framework must know of a suite; `name` is its own name of the task, `metric` of its default metric.

    `needed` are the columns without which a record is no question.
    """

    suite: str
    name: str = ""
    metric: str = ""
    system: str = ""
    letters: str = ""
    needed: tuple[str, ...] = ()


@dataclass(frozen=True)
class Job:
    """Ask items of a suite (`ask`), or score answers that are already there (`grade`, no engine needed).

    `base_url` is the response log's and ends in /v1. Sampling, seed and thinking are the log's business: what the
    framework sends of them is overwritten. `plain`: send `question` as it is, without the framework's own template.
    `answers` (grade only) has the body of the answer by item id.
    """

    do: Literal["ask", "grade"]
    task: Task
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
    """What the framework made of one item: the messages that it sent, for pairing, and the response that it graded.

    `extracted` and `correct` are its own reading by its own default scorer, `details` its named figures per item.
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
    """Write as JSON; a reader sees all of it or nothing."""
    partial = path.with_suffix(".partial")
    partial.write_text(json.dumps(asdict(what), ensure_ascii=False), encoding="utf-8")
    partial.replace(path)


def read_job(path: Path) -> Job:
    """A job as the runner wrote it."""
    said = json.loads(path.read_text(encoding="utf-8"))
    items = tuple(Item(**{**item, "choices": tuple(item["choices"])}) for item in said.pop("items"))
    task = said.pop("task")
    return Job(**said, task=Task(**{**task, "needed": tuple(task["needed"])}), items=items)


def read_result(path: Path) -> Result:
    """A result as the adapter wrote it."""
    said = json.loads(path.read_text(encoding="utf-8"))
    samples = tuple(Sample(**sample) for sample in said.pop("samples"))
    scores = tuple(Score(**score) for score in said.pop("scores"))
    return Result(**said, samples=samples, scores=scores)


def serve(framework: str, run: Callable[[Job], Result]) -> None:
    """Run jobs until stdin ends. What the framework prints goes to stderr; stdout has one `done` line per job."""
    sys.stdout.flush()
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")  # the stdout that the process was started with
    os.dup2(2, 1)
    for line in sys.stdin:
        if path := line.strip():
            write(result_of(Path(path)), _outcome(framework, run, Path(path)))
            print(f"done {path}", file=answers, flush=True)


def result_of(job: Path) -> Path:
    """Where the result of `<name>.json` lies: `<name>.result.json` in the same folder."""
    return job.with_suffix(".result.json")


def version_of(framework: str) -> str:
    """Version of the framework's installed package; "none" if it is not installed."""
    try:
        return version(PACKAGES[framework])
    except PackageNotFoundError:
        return "none"


def one_line(error: BaseException) -> str:
    """Type and message of an error on one line, and of what caused it where the message itself is empty."""
    said = " ".join(str(error).split())
    if not said and error.__cause__ is not None:
        return f"{type(error).__name__} from {one_line(error.__cause__)}"
    return f"{type(error).__name__}: {said}"[:LONGEST_ERROR]


def _outcome(framework: str, run: Callable[[Job], Result], path: Path) -> Result:
    try:
        return run(read_job(path))
    except (Exception, SystemExit) as error:  # a framework that gives up by sys.exit has failed too
        traceback.print_exc()
        return Result(framework, version_of(framework), error=one_line(error))
