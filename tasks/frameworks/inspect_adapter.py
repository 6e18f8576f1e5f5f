"""Multiple choice through inspect_ai: its own prompt, its own scorer. Runs inside the `inspect` environment.

inspect says in its log's status, not in an exit code or an exception, whether it succeeded. A request that it gives up
may become an output with another stop reason, which its scorer would count as a wrong answer: both are errors here.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from inspect_ai import Task, eval
from inspect_ai.dataset import MemoryDataset
from inspect_ai.dataset import Sample as Question
from inspect_ai.log import EvalError, EvalLog, EvalSample
from inspect_ai.model import Model, ModelOutput, get_model
from inspect_ai.scorer import CORRECT, NOANSWER, answer, choice
from inspect_ai.solver import Generate, Solver, TaskState, generate, multiple_choice, solver

from tasks.frameworks.job import Item, Job, Result, Sample, Score, serve, version_of
from tasks.frameworks.thoughts import without_thoughts

FRAMEWORK: Final = "inspect"
LONGEST_ANSWER_S: Final = 7 * 86400  # the response log ends what makes no progress; a long thought is no failure
MAX_RETRIES: Final = 1  # after 3 to 6 s, beside the OpenAI client's own; by default inspect never gives up
ENDINGS: Final = ("stop", "max_tokens")  # of a real answer; any other's text may be an error message of the server
_EXCEPTION: Final = re.compile(r"^[\w.]*(Error|Exception)\b.*$", re.MULTILINE)


def run(job: Job) -> Result:
    """Ask or grade; an error of any item is the error of the job."""
    if not job.task.letters:
        raise ValueError(f"inspect is asked for suite {job.task.suite!r}; accepted: those whose answers are letters")
    asked = generate() if job.plain else multiple_choice(cot=True)
    task = Task(
        dataset=MemoryDataset([_question(item, plain=job.plain) for item in job.items]),
        solver=_unthinking(asked, job.answers if job.do == "grade" else None),
        # a plain question says nothing about the form of the answer; inspect's letter scorer still looks for its own
        scorer=answer("letter") if job.plain else choice(),
        name=job.task.suite,
    )
    (log,) = eval(
        task,
        model=get_model("mockllm/model") if job.do == "grade" else _model(job),  # the mock is never asked
        max_connections=job.concurrency,
        max_samples=job.concurrency,
        max_tokens=job.max_tokens,
        max_retries=MAX_RETRIES,
        timeout=LONGEST_ANSWER_S,
        display="none",
        score_display=False,
        log_dir=str(Path(job.workdir) / "inspect-logs"),
        log_realtime=False,
        ctl_server=False,
    )
    error = _failure(log, len(job.items))
    if error is not None:
        return Result(FRAMEWORK, version_of(FRAMEWORK), error=error)
    return Result(FRAMEWORK, version_of(FRAMEWORK), samples=tuple(map(_sample, log.samples or ())), scores=_scores(log))


def _question(item: Item, *, plain: bool) -> Question:
    choices = None if plain else list(item.choices)
    return Question(input=item.question, choices=choices, target=item.gold, id=item.item_id)


def _model(job: Job) -> Model:
    return get_model(
        f"openai-api/response-log/{job.model}",
        base_url=job.base_url,
        api_key="none",
        memoize=False,  # every answer of an item has a base_url of its own
        client_timeout=LONGEST_ANSWER_S,
    )


@solver  # type: ignore[untyped-decorator]
def _unthinking(asked: Solver, answers: Mapping[str, str] | None) -> Solver:
    """`asked`, with thoughts removed from the answer: the model's, or one of `answers` that are there already."""

    async def solve(state: TaskState, generate: Generate) -> TaskState:
        async def answered(state: TaskState, *args: Any, **kwargs: Any) -> TaskState:
            if answers is None:
                state = await generate(state, *args, **kwargs)
            else:
                state.output = ModelOutput.from_content("recalled", answers[str(state.sample_id)])
                state.messages.append(state.output.message)
            if state.output.choices:
                state.output.completion = without_thoughts(state.output.completion)
            return state

        return await asked(state, answered)

    return solve


def _failure(log: EvalLog, items: int) -> str | None:
    """Why the log is no result, in one line; None if it is one."""
    samples = log.samples or []
    errors = [error for error in (log.error, *(sample.error for sample in samples)) if error]
    if log.status != "success" or errors:  # the log's own comes first: what it cancelled for it has errors too
        return f"inspect ended with status {log.status!r}: {_cause(errors[0]) if errors else 'no reason given'}"
    scored = [sample for sample in samples if sample.scores]
    if len(scored) != items:
        return f"inspect scored {len(scored)} of {items} items"
    for sample in samples:
        if sample.output.error or sample.output.stop_reason not in ENDINGS:
            said = " ".join((sample.output.error or sample.output.completion).split())
            return f"item {sample.id} ended with stop reason {sample.output.stop_reason!r}: {said}"
    return None


def _cause(error: EvalError) -> str:
    """The first exception of a chain: of a request that was tried again, the last says only that it was in vain."""
    found = _EXCEPTION.search(error.traceback)
    return " ".join((found[0] if found else error.message).split())


def _sample(done: EvalSample) -> Sample:
    (score,) = (done.scores or {}).values()
    usage = done.output.usage
    return Sample(
        item_id=str(done.id),
        messages=[{"role": said.role, "content": said.text} for said in done.messages if said.role != "assistant"],
        response=done.output.completion,
        extracted=score.answer or None,
        correct=None if score.value == NOANSWER else score.value == CORRECT,
        details={
            "stop_reason": done.output.stop_reason,
            "output_tokens": usage.output_tokens if usage else None,
            "unread": score.reason,  # why nothing was read from it: no_response, invalid_response_format
        },
    )


def _scores(log: EvalLog) -> tuple[Score, ...]:
    found = []
    for score in log.results.scores if log.results else ():
        values = {name: metric.value for name, metric in score.metrics.items()}
        stderr = values.pop("stderr", None)
        found += [Score(name, value, stderr, score.scored_samples or 0) for name, value in values.items()]
    return tuple(found)


if __name__ == "__main__":
    serve(FRAMEWORK, run)
