"""Korean suites through HRET: its own prompts, its own default evaluator. Runs inside the `hret` environment.

The model backend is ours. HRET 0.1.0 pairs answers with questions in the order in which the answers arrive. It
gives an item 30 s, counts what failed as a wrong answer, and reports a failed run as a metric.
"""

from __future__ import annotations

import asyncio
from typing import Any, Final

from llm_eval import PipelineRunner
from llm_eval.datasets import DATASET_REGISTRY
from llm_eval.datasets.base import BaseDataset
from llm_eval.models import register_model
from llm_eval.models.base import BaseModel
from llm_eval.models.openai_backend import OpenAIModel

from tasks.frameworks.job import Item, Job, Result, Sample, Score, one_line, serve, version_of
from tasks.frameworks.thoughts import without_thoughts

FRAMEWORK: Final = "hret"
ORDERED: Final = "specsweep-ordered"  # our backend in HRET's registry
RECALLED: Final = "specsweep-recalled"  # another, which gives answers that are there already
ITEMS: Final = "specsweep-items"  # the job's items in HRET's registry of datasets
LONGEST_ANSWER_S: Final = 7 * 86400  # the response log ends what makes no progress; a long thought is no failure
MAX_RETRIES: Final = 2  # of the OpenAI client, after 0.5 s and 1 s; an engine that died needs the runner
ENDINGS: Final = ("stop", "length")  # finish reasons of a real answer
Said = dict[str, Any]  # a sample as HRET hands it around


class UnusableItem(ValueError):
    """HRET would make another question of it than the one that was prepared."""


class AnswerFailed(RuntimeError):
    """An item has no answer."""


class _OrderedBackend(OpenAIModel):  # type: ignore[misc]
    """HRET's OpenAI backend, with each answer kept beside its question; the first failure ends all."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(timeout=LONGEST_ANSWER_S, **settings)
        self.client: Any = self.client.with_options(max_retries=MAX_RETRIES)

    async def _generate_batch_async(self, inputs: list[Said], *_: Any, **__: Any) -> list[Said]:
        slots = asyncio.Semaphore(self.batch_size)
        try:
            async with self.client, asyncio.TaskGroup() as group:
                asked = [group.create_task(self._answered(said, slots)) for said in inputs]
        except ExceptionGroup as failed:
            raise failed.exceptions[0] from None
        return [task.result() for task in asked]

    async def _answered(self, said: Said, slots: asyncio.Semaphore) -> Said:
        async with slots:
            try:
                answer = await self.client.chat.completions.create(**self._create_payload(said["input"]))
                (choice,) = answer.choices
            except Exception as error:
                raise AnswerFailed(f"item {said['item_id']}: {one_line(error)}") from error
        if choice.finish_reason not in ENDINGS:
            raise AnswerFailed(f"item {said['item_id']} ended with finish reason {choice.finish_reason!r}")
        text = choice.message.content or ""
        tokens = answer.usage.completion_tokens if answer.usage else None
        figures = {"finish_reason": choice.finish_reason, "output_tokens": tokens}
        return {**said, **_graded(text), **figures}


class _Recalled(BaseModel):  # type: ignore[misc]
    """Answers that are there already."""

    def __init__(self, answers: dict[str, str], **_: Any) -> None:
        super().__init__()
        self.answers = answers

    def generate_batch(self, inputs: list[Said], *_: Any, **__: Any) -> list[Said]:
        texts = [self.answers[said["item_id"]] for said in inputs]
        return [{**said, **_graded(text)} for said, text in zip(inputs, texts, strict=True)]


def _graded(text: str) -> Said:
    """What HRET grades, and what was said: its evaluator reads the first answer, which may be one of the thoughts."""
    return {"prediction": without_thoughts(text), "response": text}


register_model(ORDERED)(_OrderedBackend)
register_model(RECALLED)(_Recalled)


def run(job: Job, backend: str = ORDERED) -> Result:
    """Ask or grade; an error of any item is the error of the job."""
    connection = {
        "model_name": job.model,
        "api_base": job.base_url,
        "api_key": "none",
        "max_tokens": job.max_tokens,
        "batch_size": job.concurrency,
    }
    stock = DATASET_REGISTRY[job.task.name]
    DATASET_REGISTRY[ITEMS] = type(
        "Items", (stock,), {"load": lambda dataset: [_question(dataset, job, item) for item in job.items]}
    )
    done = PipelineRunner(
        dataset_name=ITEMS,
        model_backend_name=RECALLED if job.do == "grade" else backend,
        model_backend_params={"answers": job.answers} if job.do == "grade" else connection,
        evaluation_method_name="string_match",
        language_penalize=False,  # it looks for Korean in what the evaluator has cut down to a letter
    ).run()
    if "pipeline_error" in done.metrics or "error" in done.info:
        error = " ".join(str(done.metrics.get("pipeline_error") or done.info["error"]).split())
        return Result(FRAMEWORK, version_of(FRAMEWORK), error=error)
    samples = tuple(map(_sample, done.samples))
    scores = tuple(Score(name, float(value), None, len(samples)) for name, value in done.metrics.items())
    return Result(FRAMEWORK, version_of(FRAMEWORK), samples=samples, scores=scores)


def _question(dataset: BaseDataset, job: Job, item: Item) -> Said:
    reference, named = f"({item.gold})", {"item_id": item.item_id}
    if job.plain:
        options = [f"({letter})" for letter in job.task.letters]
        plain = {"input": item.question, "reference": reference, "options": options, "_subset_name": item.category}
        return plain | named
    missing = [field for field in job.task.needed if item.record.get(field) in (None, "")]
    if missing:  # HRET would make a question without it
        raise UnusableItem(f"item {item.item_id}: its record has no {', '.join(missing)}")
    (said,) = dataset._convert_to_list([item.record], item.category)
    if said["reference"] != reference:
        raise UnusableItem(f"item {item.item_id}: HRET reads the answer {said['reference']!r}, not {reference!r}")
    return {**said, **named}


def _sample(said: Said) -> Sample:
    return Sample(
        item_id=said["item_id"],
        # made of the question that HRET holds for answered, so that a mispairing shows beside the response log
        messages=[{"role": "user", "content": said["input"]}],
        response=said["response"],
        extracted=said["evaluation"]["normalized_pred"] or None,
        correct=said["evaluation"]["is_correct"],
        details={
            "stop_reason": said.get("finish_reason"),
            "output_tokens": said.get("output_tokens"),
            "unread": None if without_thoughts(said["response"]).strip() else "no_response",
        },
    )


if __name__ == "__main__":
    serve(FRAMEWORK, run)
