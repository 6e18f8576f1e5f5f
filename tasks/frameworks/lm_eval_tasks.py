"""lm-eval's own tasks over a job's frozen items: its templates, filters and metrics; our order, our choices, no stop.

Runs inside the lm-eval environment.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, NamedTuple

import datasets
import lm_eval.tasks
from lm_eval.api.task import ConfigurableTask
from lm_eval.tasks._yaml_loader import load_yaml

from tasks.frameworks.job import Item, Job

STOCK: Final = Path(lm_eval.tasks.__file__).parent

SPLIT = "items"


class Stock(NamedTuple):
    """A task that lm-eval ships, and how an item becomes one of its documents."""

    template: str
    """YAML below lm_eval/tasks."""
    doc: Callable[[Item], dict[str, Any]]
    scorer: tuple[str, str]
    """Metric and filter that lm-eval reports first: its own default."""
    description: str = ""
    """Rendered for each document; lm-eval sends it as the system message."""


def _gpqa_doc(item: Item) -> dict[str, Any]:
    from lm_eval.tasks.gpqa.cot_zeroshot.utils import preprocess

    choices = [preprocess(choice) for choice in item.choices]
    named = {f"choice{place}": choice for place, choice in enumerate(choices, 1)}
    return {"Question": item.record["Question"], **named, "choices": choices, "answer": f"({item.gold})"}


def _mmlu_pro_doc(item: Item) -> dict[str, Any]:
    return {
        "question": item.record["question"],
        "options": list(item.choices),
        "answer": item.gold,
        "category": item.category,
    }


def _ifeval_doc(item: Item) -> dict[str, Any]:
    # as text: in a table of the items, every instruction would get the arguments of all others, as nulls
    return {"prompt": item.record["prompt"], "record": json.dumps(item.record)}


SUITES: Final = {
    "gpqa": Stock("gpqa/cot_zeroshot/gpqa_diamond_cot_zeroshot.yaml", _gpqa_doc, ("exact_match", "strict-match")),
    "mmlu-pro": Stock(
        "mmlu_pro/_default_template_yaml",
        _mmlu_pro_doc,
        ("exact_match", "custom-extract"),
        "The following are multiple choice questions (with answers) about {{category}}. Think step by step and then "
        'finish your answer with "the answer is (X)" where X is the correct letter choice.\n',
    ),
    "ifeval": Stock("ifeval/ifeval.yaml", _ifeval_doc, ("prompt_level_strict_acc", "none")),
}
"""MMLU-Pro's description is that of its fourteen subject tasks, with the subject filled in per document. It is asked
zero-shot: its stock five examples need another split, and show a model that thinks how to think otherwise."""


def task_of(job: Job) -> ConfigurableTask:
    """The stock task of the job's suite with the job's items as its only split, in their order."""
    stock = SUITES[job.suite]
    config = load_yaml(STOCK / stock.template)
    for key in ("tag", "process_docs", "training_split", "validation_split", "fewshot_split", "fewshot_config"):
        config.pop(key, None)
    docs = [{**stock.doc(item), "item_id": item.item_id, "as_is": item.question} for item in job.items]
    config |= {
        "task": job.suite,
        "dataset_path": "items of the job",
        "dataset_name": None,
        "custom_dataset": lambda **_: {SPLIT: datasets.Dataset.from_list(docs)},
        "test_split": SPLIT,
        "num_fewshot": 0,
        "description": "" if job.plain else stock.description,
        # a stop string would end the thinking itself: null content, finish "stop", scored as wrong
        "generation_kwargs": {"until": [], "max_gen_toks": job.max_tokens, "do_sample": False},
    }
    if job.plain:
        config["doc_to_text"] = _as_is
    if job.suite == "ifeval":
        from tasks.frameworks.lm_eval_ifeval import process_results

        config["process_results"] = process_results
    return ConfigurableTask(config=config)


def _as_is(doc: dict[str, Any]) -> str:
    return str(doc["as_is"])
