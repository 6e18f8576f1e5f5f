"""GPQA, MMLU-Pro and IFEval through EleutherAI's lm-eval: its prompts, its filters, its metrics, over frozen items.

Runs inside the lm-eval environment: `python -m tasks.frameworks.lm_eval_adapter`, see serve.py.
"""

from __future__ import annotations

import json
import os
from dataclasses import replace
from typing import Any

from tasks.frameworks.job import Job, Result, Sample, Score
from tasks.frameworks.serve import serve, version_of

FRAMEWORK = "lm-eval"


def run(job: Job) -> Result:
    """Ask the items, or grade the answers that the job brings; without any, only look whether grading could be done."""
    # what it may read lies in the job: nothing is looked up on the hub
    os.environ |= {"HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}
    from tasks.frameworks.lm_eval_tasks import SUITES

    if job.suite not in SUITES:
        raise ValueError(f"suite {job.suite!r}; lm-eval is set up for {', '.join(SUITES)}")
    if job.suite == "ifeval":
        from tasks.frameworks.lm_eval_ifeval import ready

        ready(job.items)
    if job.do == "grade":
        job = replace(job, items=tuple(item for item in job.items if item.item_id in job.answers))
    return _evaluated(job) if job.items else Result(FRAMEWORK, version_of(FRAMEWORK))


def _evaluated(job: Job) -> Result:
    from lm_eval import simple_evaluate
    from lm_eval.tasks import TaskManager

    from tasks.frameworks.lm_eval_models import Answered, Tape
    from tasks.frameworks.lm_eval_tasks import SUITES, task_of

    said = simple_evaluate(
        model=Tape(job) if job.do == "ask" else Answered(job.answers),
        tasks=[task_of(job)],
        task_manager=TaskManager(include_defaults=False),
        apply_chat_template=True,
        log_samples=True,
    )
    samples = _samples(job, said["samples"][job.suite], SUITES[job.suite].scorer)
    return Result(FRAMEWORK, version_of(FRAMEWORK), samples, _scores(said["results"][job.suite], len(samples)))


def _samples(job: Job, logged: list[dict[str, Any]], scorer: tuple[str, str]) -> tuple[Sample, ...]:
    """One sample per item, in the job's order, from one record per item and filter."""
    metric, default = scorer
    by_item: dict[str, dict[str, dict[str, Any]]] = {}
    for record in logged:
        by_item.setdefault(record["doc"]["item_id"], {})[record["filter"]] = record
    if [*by_item] != [item.item_id for item in job.items]:
        raise ValueError(f"lm-eval returned {len(by_item)} of {len(job.items)} items, or in another order")
    return tuple(_sample(item_id, filters, metric, default) for item_id, filters in by_item.items())


def _sample(item_id: str, filters: dict[str, dict[str, Any]], metric: str, default: str) -> Sample:
    said = filters[default]
    details = {name: record["filtered_resps"][0] for name, record in filters.items()}
    if metric == "prompt_level_strict_acc":
        details = {
            "prompt_level_strict": bool(said["prompt_level_strict_acc"]),
            "prompt_level_loose": bool(said["prompt_level_loose_acc"]),
            "inst_strict": list(said["inst_level_strict_acc"]),
            "inst_loose": list(said["inst_level_loose_acc"]),
        }
    return Sample(
        item_id=item_id,
        messages=_messages(said["arguments"][0][0]),
        response=said["resps"][0][0],
        extracted=None if metric == "prompt_level_strict_acc" else said["filtered_resps"][0],
        correct=bool(said[metric]),
        details=details,
    )


def _messages(argument: Any) -> list[dict[str, str]]:
    """The messages from the first argument of a request, where lm-eval keeps them as JSON."""
    text = argument if isinstance(argument, str) else argument[0]
    return [{"role": message["role"], "content": message["content"]} for message in json.loads(text)]


def _scores(said: dict[str, Any], n: int) -> tuple[Score, ...]:
    """Every metric under its full name; `metric_stderr,filter` belongs to `metric,filter`."""
    figures = {key: value for key, value in said.items() if "," in key and "_stderr," not in key}
    return tuple(Score(key, float(value), _number(said.get(_stderr(key))), n) for key, value in figures.items())


def _stderr(metric: str) -> str:
    name, filter_name = metric.split(",", 1)
    return f"{name}_stderr,{filter_name}"


def _number(value: Any) -> float | None:
    return float(value) if isinstance(value, int | float) else None


def main() -> None:
    """Serve jobs until stdin ends."""
    serve(FRAMEWORK, run)


if __name__ == "__main__":
    main()
