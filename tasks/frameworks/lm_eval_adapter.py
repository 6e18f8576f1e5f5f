"""Suites through EleutherAI's lm-eval: its prompts, filters and metrics over frozen items; our order, no stop string.

Runs inside the lm-eval environment. What lm-eval gets to grade has no thoughts in it: for models that it runs itself,
lm-eval removes them (`think_end_token`), but not behind an API.
"""

from __future__ import annotations

import json
import os
import random
import socket
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

# what it may read lies in the job: nothing is looked up on the hub
os.environ |= {"HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}

import datasets
import lm_eval.tasks
from lm_eval import simple_evaluate
from lm_eval.api.model import LM
from lm_eval.api.task import ConfigurableTask
from lm_eval.models.openai_completions import LocalChatCompletion
from lm_eval.tasks import TaskManager
from lm_eval.tasks._yaml_loader import load_yaml
from lm_eval.tasks.gpqa.cot_zeroshot.utils import preprocess

from tasks.frameworks.job import Item, Job, Result, Sample, Score, serve, version_of
from tasks.frameworks.thoughts import without_thoughts

FRAMEWORK: Final = "lm-eval"

SPLIT: Final = "items"
TIMEOUT_S: Final = 24 * 3600  # longer than any answer: progress is the response log's to judge
TRIES: Final = 3  # of one request; the log holds back what may still be answered, so what comes through is for good
LEFT_TO_THE_LOG: Final = ("stop", "seed", "temperature")

WITH_PUNKT: Final = frozenset({"length_constraints:number_sentences", "change_case:capital_word_frequency"})
"""Instructions of IFEval whose checkers split sentences with nltk's punkt_tab; the other 23 never touch it."""

DOWNLOAD_S: Final = 20.0  # longest silence while nltk fetches punkt_tab on import: without a network that takes minutes


class MissingDependency(Exception):
    """IFEval's checkers lack a package or data that these items need."""


def run(job: Job) -> Result:
    """Ask the items, or grade the answers that the job brings; without any, only look whether grading could be done."""
    if job.task.suite == "ifeval":
        _see_checkers(job.items)
    if job.do == "grade":
        job = replace(job, items=tuple(item for item in job.items if item.item_id in job.answers))
    if not job.items:
        return Result(FRAMEWORK, version_of(FRAMEWORK))
    said = simple_evaluate(
        model=_ThroughTheLog(job) if job.do == "ask" else _Answered(job.answers),
        tasks=[_task_of(job)],
        task_manager=TaskManager(include_defaults=False),
        apply_chat_template=True,
        log_samples=True,
    )
    samples = _samples(job, said["samples"][job.task.suite])
    return Result(FRAMEWORK, version_of(FRAMEWORK), samples, _scores(said["results"][job.task.suite], len(samples)))


def _task_of(job: Job) -> ConfigurableTask:
    """The stock task of the job's suite with the job's items as its only split, in their order."""
    config = load_yaml(Path(lm_eval.tasks.__file__).parent / job.task.name)
    for key in ("tag", "process_docs", "training_split", "validation_split", "fewshot_split", "fewshot_config"):
        config.pop(key, None)
    docs = [{**_document(job, item), "item_id": item.item_id, "as_is": item.question} for item in job.items]
    config |= {
        "task": job.task.suite,
        "dataset_path": "items of the job",
        "dataset_name": None,
        "custom_dataset": lambda **_: {SPLIT: datasets.Dataset.from_list(docs)},
        "test_split": SPLIT,
        "num_fewshot": 0,
        "description": "" if job.plain else job.task.system,
        # a stop string would end the thinking itself: null content, finish "stop", scored as wrong
        "generation_kwargs": {"until": [], "max_gen_toks": job.max_tokens, "do_sample": False},
    }
    if job.plain:
        config["doc_to_text"] = lambda doc: doc["as_is"]
    if job.task.suite == "ifeval":
        config["process_results"] = _with_seeded_dice
    return ConfigurableTask(config=config)


def _document(job: Job, item: Item) -> dict[str, Any]:
    """An item as lm-eval's own preparation of the dataset would have left it; by itself, it changes nothing."""
    if job.task.suite == "ifeval":  # as text: in a table, every instruction would get all others' arguments, as nulls
        return {"prompt": item.record["prompt"], "record": json.dumps(item.record)}
    if job.task.suite == "gpqa":
        choices = [preprocess(choice) for choice in item.choices]
        named = {f"choice{place}": choice for place, choice in enumerate(choices, 1)}
        return {"Question": item.record["Question"], **named, "choices": choices, "answer": f"({item.gold})"}
    return item.record


def _samples(job: Job, logged: list[dict[str, Any]]) -> tuple[Sample, ...]:
    """One sample per item, in the job's order, from one record per item and filter."""
    by_item: dict[str, dict[str, dict[str, Any]]] = {}
    for record in logged:
        by_item.setdefault(record["doc"]["item_id"], {})[record["filter"]] = record
    if [*by_item] != [item.item_id for item in job.items]:
        raise ValueError(f"lm-eval returned {len(by_item)} of {len(job.items)} items, or in another order")
    return tuple(_sample(item_id, filters, job.task.metric) for item_id, filters in by_item.items())


def _sample(item_id: str, filters: dict[str, dict[str, Any]], full_metric: str) -> Sample:
    metric, default = full_metric.split(",")
    said, checked = filters[default], metric == "prompt_level_strict_acc"
    details = {name: record["filtered_resps"][0] for name, record in filters.items()}
    if checked:
        details = {
            "prompt_level_strict": bool(said["prompt_level_strict_acc"]),
            "prompt_level_loose": bool(said["prompt_level_loose_acc"]),
            "inst_strict": list(said["inst_level_strict_acc"]),
            "inst_loose": list(said["inst_level_loose_acc"]),
        }
    argument = said["arguments"][0][0]  # of a request, where lm-eval keeps the messages as JSON
    messages = json.loads(argument if isinstance(argument, str) else argument[0])
    return Sample(
        item_id=item_id,
        messages=[{"role": message["role"], "content": message["content"]} for message in messages],
        response=said["resps"][0][0],
        extracted=None if checked else said["filtered_resps"][0],
        correct=bool(said[metric]),
        details=details,
    )


def _scores(said: dict[str, Any], n: int) -> tuple[Score, ...]:
    """Every metric under its full name; `metric_stderr,filter` belongs to `metric,filter`."""
    found = []
    for key, value in said.items():
        name, _, filter_name = key.partition(",")
        if filter_name and not name.endswith("_stderr"):
            stderr = said.get(f"{name}_stderr,{filter_name}")
            found.append(Score(key, float(value), float(stderr) if isinstance(stderr, int | float) else None, n))
    return tuple(found)


class _ThroughTheLog(LocalChatCompletion):  # type: ignore[misc]
    """lm-eval's own chat client; silent about sampling, and an answer without choices is an error, not a blank."""

    def __init__(self, job: Job) -> None:
        # one request at a time goes through `requests`, which would send it to the node's proxy
        os.environ["NO_PROXY"] = os.environ["no_proxy"] = f"{os.environ.get('NO_PROXY', '')},127.0.0.1,localhost"
        super().__init__(
            base_url=f"{job.base_url}/chat/completions",
            model=job.model,
            num_concurrent=job.concurrency,
            max_retries=TRIES,
            max_gen_toks=job.max_tokens,
            timeout=TIMEOUT_S,
            tokenizer_backend=None,
        )

    def _create_payload(self, *args: Any, **kwargs: Any) -> dict[str, Any]:
        payload: dict[str, Any] = super()._create_payload(*args, **kwargs)
        return {key: value for key, value in payload.items() if key not in LEFT_TO_THE_LOG}

    def parse_generations(self, outputs: Any, **kwargs: Any) -> list[str]:
        """The texts, thoughts removed; lm-eval makes "" of null content, and would of a reply that is no answer."""
        for output in outputs if isinstance(outputs, list) else [outputs]:
            if not output.get("choices"):
                raise ValueError(f"an answer without choices: {json.dumps(output)[:200]}")
        answers: list[str] = super().parse_generations(outputs, **kwargs)
        return [without_thoughts(answer) if answer else answer for answer in answers]  # null stays null


class _Answered(LM):  # type: ignore[misc]
    """Answers by item id, so that what was asked once is graded again without an engine."""

    tokenizer_name = ""

    def __init__(self, answers: dict[str, str]) -> None:
        super().__init__()
        self.answers = answers

    def generate_until(self, requests: Any, disable_tqdm: bool = False) -> list[str]:
        return [without_thoughts(self.answers[request.doc["item_id"]]) for request in requests]

    def apply_chat_template(self, chat_history: list[dict[str, str]], add_generation_prompt: bool = True) -> str:
        """The messages as JSON, as lm-eval's chat clients keep them."""
        return json.dumps(chat_history, ensure_ascii=False)

    def loglikelihood(self, requests: Any, disable_tqdm: bool = False) -> Any:
        """No suite asks for it."""
        raise NotImplementedError

    loglikelihood_rolling = loglikelihood


def _see_checkers(items: Iterable[Item]) -> None:
    """Import IFEval's checkers and see that all that these items need is there, before a GPU is kept waiting.

    Importing them downloads punkt_tab if it is missing. Where that fails, items that don't need it are still scored.
    """
    before = socket.getdefaulttimeout()
    socket.setdefaulttimeout(DOWNLOAD_S)
    try:
        import langdetect
        import lm_eval.tasks.ifeval.instructions_registry as registry
        import nltk
    except ImportError as error:
        raise MissingDependency(f"IFEval's checkers need {error.name}: make the lm-eval environment anew") from error
    finally:
        socket.setdefaulttimeout(before)
    langdetect.DetectorFactory.seed = 0  # unseeded, the language of the same answer may be read differently
    wanted = {name for item in items for name in item.record["instruction_id_list"]}
    if unknown := sorted(wanted - set(registry.INSTRUCTION_DICT)):
        raise MissingDependency(f"lm-eval has no checker for {unknown[0]}: wrong value in instruction_id_list")
    if needing := wanted & WITH_PUNKT:
        try:
            nltk.data.find("tokenizers/punkt_tab/english/")
        except LookupError:
            raise MissingDependency(
                f"IFEval's {min(needing)} needs nltk's punkt_tab, which is not here and can't be downloaded: "
                "name a folder in NLTK_DATA that has tokenizers/punkt_tab"
            ) from None


def _with_seeded_dice(doc: dict[str, Any], results: list[str]) -> dict[str, Any]:
    """IFEval's stock scores; the item's id seeds the dice that a few checkers roll: equal answers score alike."""
    from lm_eval.tasks.ifeval.utils import process_results

    random.seed(doc["item_id"])
    scores: dict[str, Any] = process_results(json.loads(doc["record"]), results)
    return scores


if __name__ == "__main__":
    serve(FRAMEWORK, run)
