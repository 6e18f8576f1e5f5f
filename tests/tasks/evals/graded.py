"""Steps, made-up items, answers in a response log, and what a framework makes of them."""

import json
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from configs.evals.suites import EVALUATIONS, SuiteFacts
from configs.steps.eval import EvalStep
from tasks.evals.exchange import prompt_hash, request_hash
from tasks.frameworks.job import Item, Result, Sample, Score

OPTIONS = ("gold", "teal", "rose", "grey")


def step_of(suite: SuiteFacts, **fields: Any) -> EvalStep:
    """A step of this suite with these fields, as a sweep's YAML would make it."""
    name = next(entry.step for entry in EVALUATIONS.values() if entry.suite is suite)
    return EvalStep.model_validate({"step": name, **fields})


def jsonl(path: Path, records: Iterable[dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(record) + "\n" for record in records), encoding="utf-8")
    return path


def item(number: int, gold: str = "C", **changed: Any) -> Item:
    question = f"Which colour has number {number} ?"
    return replace(Item(f"item-{number}", question, OPTIONS, gold, "colours", {"Question": question}), **changed)


def messages(asked: Item) -> list[dict[str, str]]:
    """As a framework asks: its own template, its own white space."""
    options = "\n".join(f"({letter})  {text}" for letter, text in zip("ABCD", asked.choices, strict=False))
    return [{"role": "user", "content": f"Choose.\n\n{asked.question}\n{options}\n"}]


def exchange(
    asked: Item, body: str | None, reasoning: str = "", finish: str = "stop", **changed: Any
) -> dict[str, Any]:
    said = messages(asked)
    return {
        "suite": "eval-gpqa", "request_hash": request_hash({"messages": said, "seed": 0}), "occurrence": 0,
        "prompt_hash": prompt_hash(said), "sample": 0, "messages": None, "parameters": "{}", "dropped": [],
        "body": body, "reasoning": reasoning, "finish_reason": finish, "stop_reason": None, "prompt_tokens": 20,
        "completion_tokens": 40, "latency_s": 1.0, **changed,
    }  # fmt: skip


class Recorded:
    def __init__(self, rows: Sequence[dict[str, Any]]) -> None:
        self.rows = list(rows)

    def __call__(self, wanted: str, sample: int) -> list[dict[str, Any]]:
        return [row for row in self.rows if (row["prompt_hash"], row["sample"]) == (wanted, sample)]


def graded(asked: Item, response: str | None, extracted: str | None = None, **changed: Any) -> Sample:
    right = None if extracted is None else extracted == asked.gold
    return replace(Sample(asked.item_id, messages(asked), response or "", extracted, right), **changed)


def result(samples: Sequence[Sample], scores: Sequence[Score] = (), framework: str = "lm-eval") -> Result:
    return Result(framework, "0.4.13", tuple(samples), tuple(scores))
