"""What the guards say about one workload at one concurrency."""

from __future__ import annotations

from collections.abc import Sequence

from configs.cell import Cell, Gpu
from tasks.guards.answers import blank_output
from tasks.guards.drafting import acceptance_mismatch
from tasks.guards.finding import Finding, Judgement, judge
from tasks.guards.steadiness import client_limited, client_starved, unsteady
from tasks.guards.tokens import cut_prompts, token_mismatch
from tasks.meters import Counters
from tasks.steady import paces_of
from tasks.timing.condition_verdict import counted_in, drafting_findings, text_findings
from tasks.timing.load_verdict import slow_alone, too_fast, work_findings
from warehouse.parts import Row


def judge_workload(
    served: Cell,
    gpu: Gpu,
    condition: str,
    mode: str,
    windows: Sequence[Row],
    requests: Sequence[Row],
    again: Sequence[Finding | None] = (),
) -> Judgement:
    """What the guards say about a condition. That a program is wrong is a result, and no guard's matter.

    Args:
        served: the cell that the engine serves: in a control's visit the control.
        gpu: as planned.
        condition: its name.
        mode: of the rows.
        windows: its rows of `prompt_windows`, all repeats.
        requests: its rows of `prompt_requests`.
        again: what is said of an engine that is asked prompts again.
    """
    concurrency = windows[0]["concurrency"]
    found = [
        *work_findings(served, windows, requests, counted_in(windows)),
        too_fast(served, gpu, concurrency, windows, requests),
        slow_alone(served, gpu, concurrency, requests),
        *_answer_findings(served, requests),
        _unsteady(served, windows),
        client_starved(windows),
        client_limited(windows),
        *again,
    ]
    return judge(condition, mode, found)


def _unsteady(served: Cell, windows: Sequence[Row]) -> Finding | None:
    """Every repeat sends the same prompts, and drafts are worth the same on them.

    A canvas takes its steps however much of it the answer fills, which a sampled one does by chance: by tokens a steady
    machine would be accused. It counts its own steps.
    """
    if served.technique.denoises:
        return unsteady(paces_of(windows), None)
    return unsteady([row["completion_tokens"] / row["wall_s"] for row in windows], None, "tokens/s")


def smoke_findings(served: Cell, requests: Sequence[Row], counted: Counters) -> list[Finding | None]:
    """What the guards say about a few answers before hours are spent."""
    return [
        token_mismatch(sum(row["completion_tokens"] for row in requests), counted),
        *drafting_findings(served, counted),
        acceptance_mismatch(served.k, requests, counted),
        *_answer_findings(served, requests),
    ]


def _answer_findings(served: Cell, requests: Sequence[Row]) -> list[Finding | None]:
    real = served.model.weights == "real"
    return [
        blank_output([row["text"] for row in requests]) if real else None,
        cut_prompts(requests),
        *text_findings(served, requests),
    ]
