"""Prompts: seconds, rates and speedups of named workloads, and whether the programs in their answers are right.

The seconds of a rate run from the first sending to the last byte, tail included, because a user waits for it, too.
Characters over the same seconds (`chars_s`) compare languages. A greedy prompt asked twelve times may have only one
answer (`programs_distinct`).

Requests that are sent together, and repeats, are copies of one prompt. Greedy copies write the same tokens, so a step
of a mixture of experts reads few more experts for all of them than for one, and several in flight are faster than with
prompts that differ, as `load` has them. They stay copies all the same: else `code c=4` would be another prompt than
`code c=1`, and than the prompt of its write-up.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import fmean, median

import polars as pl

from configs.steps.prompts import PromptsStep, workload_of
from warehouse.dataset.consolidate.inputs import STEP, Group, Identity, Raw
from warehouse.dataset.consolidate.rows import Made, Result, Row
from warehouse.dataset.consolidate.speed.rows import speed_rows
from warehouse.dataset.consolidate.speed.starts import TimedStart, in_order, timed_starts
from warehouse.ledger.timed_tables import PROMPT_REQUESTS, PROMPT_WINDOWS, PROMPTS

TABLES = PROMPTS

RUN = ("correct", "wrong", "failed", "timed_out")
"""What becomes of a program that was run, or that an answer should have had and hasn't."""

KEPT = (
    "attempt", "condition", "repeat", "number", "wall_s", "completion_tokens", "chars", "finish_reason", "program",
    "program_reason",
)  # fmt: skip

MOST_REASONS = 3  # different reasons that a row's details name; all of them are in `prompt_requests`


def rows(group: Group, raw: Raw) -> Made:
    """One row per workload and concurrency, with their rows of `visits`."""
    measured = {
        step.identity: timed_starts(step, raw, raw.rows(step, PROMPT_WINDOWS, in_order), [])
        for step in group
        if step.wrote(PROMPT_WINDOWS)
    }
    answers = {
        step.identity: [dict(row) for row in raw.rows(step, PROMPT_REQUESTS, _without_texts)]
        for step in group
        if step.identity in measured and step.visit.role == "cell"
    }
    made = speed_rows(group, measured, raw)
    languages = {
        (step.cell_key, each.name): each.language
        for step in group
        if isinstance(step.spec, PromptsStep)
        for each in step.spec.workloads
    }
    results = []
    for result in made.results:
        if result.columns.get("tok_s") is not None:
            result = _told(result, _asked(result.columns, measured, answers))
        workload = workload_of(result.columns.get("condition") or "")
        results.append(result.plus({"language": languages.get((result.columns["cell_key"], workload))}))
    return made._replace(results=results)


def _without_texts(frame: pl.LazyFrame) -> pl.LazyFrame:
    """How long answers took, how they ended, what became of their programs, and `answer`, which tells texts apart."""
    return frame.select(*STEP, *KEPT, pl.col("text").hash().alias("answer")).sort(
        "condition", "attempt", "repeat", "number"
    )


def _asked(
    row: Row, measured: Mapping[Identity, Sequence[TimedStart]], answers: Mapping[Identity, Sequence[Row]]
) -> list[Row]:
    """The answers in the windows of which the row's rate is made: its machine's, of all its starts."""
    found: list[Row] = []
    for identity, there in answers.items():
        if identity[:2] != (row["run_id"], row["cell_key"]):
            continue
        windows = {
            (window["condition"], window["attempt"], window["repeat"])
            for visit in measured[identity]
            if visit.is_complete and visit.machine == row["machine"] and visit.shape[0] == row["condition"]
            for window in visit.windows
        }
        found += [each for each in there if (each["condition"], each["attempt"], each["repeat"]) in windows]
    return found


def _told(result: Result, asked: Sequence[Row]) -> Result:
    """The row with what its answers show. A wrong program is a result: the row stays ok, and says what was wrong."""
    run = [each for each in asked if each["program"] in RUN]
    not_run = [each for each in asked if each["program"] == "not_run"]
    bad = [each for each in (*run, *not_run) if each["program"] != "correct"]
    for said in list(dict.fromkeys(f"{each['program']}: {each['program_reason']}" for each in bad))[:MOST_REASONS]:
        result = result.noting(f"program {said}")
    columns = {
        "mbu": None,  # answers are of any length, and that of a window isn't its cap
        "answer_s": median(each["wall_s"] for each in asked) if asked else None,
        "answer_tokens": fmean(each["completion_tokens"] for each in asked) if asked else None,
        "truncated": sum(each["finish_reason"] == "length" for each in asked),
        "blank": sum(not each["chars"] for each in asked),
        "programs": len(run) if run or not_run else None,
        "programs_distinct": len({each["answer"] for each in run}) or None,
        "programs_correct": sum(each["program"] == "correct" for each in run) / len(run) if run else None,
    }
    return result.plus(columns)
