"""An evaluation with several looks ends early where its verdict against the AR cell is clear."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from configs.cell import Cell
from configs.evals.spec import EvalStep
from configs.schema import Plan
from tasks.context import StepContext
from warehouse.evals.tables import EVAL_SAMPLES
from warehouse.parts import Row
from warehouse.statistics.paired import compare
from warehouse.statistics.sequential import levels, stop


async def early_verdict(ctx: StepContext, spec: EvalStep, look: int, rows: Sequence[Row]) -> str | None:
    """Why the step may end after this look, in one sentence; None: it goes on.

    The AR cell itself always answers everything, and so does a cell whose AR cell has not committed the step yet, or
    not as ok: then nothing is compared with it in the end, either.
    """
    cell = ctx.cell
    if cell.technique.is_baseline:
        return None
    theirs = await asyncio.to_thread(_baseline, ctx, spec.step)
    ours = _means(rows)
    common = sorted(set(ours) & set(theirs))
    if len(common) < len(ours):
        return None
    identity = f"{ctx.cell.cell_key}/{spec.step}/{look}"
    level = levels(spec.looks)[look - 1]
    arms = [theirs[item] for item in common], [ours[item] for item in common]
    found = compare(*arms, spec.samples, spec.margin, identity, level)
    conclusion = stop(found, level, comparisons=_comparisons(ctx.plan(), spec.step))
    if conclusion is None:
        return None
    share = f"{len(common)} items, look {look} of {len(spec.looks)}, level {level:.4f}"
    return f"ended early, {conclusion} ({share})"


def _means(rows: Sequence[Row]) -> dict[str, float]:
    """Share of right answers by item."""
    answers: dict[str, list[bool]] = {}
    for row in rows:
        answers.setdefault(row["item_id"], []).append(row["correct"])
    return {item: sum(right) / len(right) for item, right in answers.items()}


def _baseline(ctx: StepContext, step: str) -> dict[str, float]:
    """The share of right answers by item, of the AR cell that the report compares with; empty if it has no such one."""
    verdicts = {key: ctx.verdict_of(key, step) for key in baseline_keys(ctx.plan(), ctx.cell)}
    first = next((key for key, verdict in verdicts.items() if verdict is not None), None)
    return _means(ctx.committed_rows(first, step, EVAL_SAMPLES)) if first and verdicts[first] == "ok" else {}


def _comparisons(plan: Plan, step: str) -> int:
    """Cells of the run that are compared with an AR cell by this step: Holm's family."""
    others = [planned for planned in plan.cells if not planned.cell.technique.is_baseline]
    return max(1, sum(any(spec.step == step for spec in planned.steps) for planned in others))


def baseline_keys(plan: Plan, cell: Cell) -> list[str]:
    """AR cells of the run that a cell is compared with, those with its own serving arguments first."""
    alike = [
        planned.cell
        for planned in plan.cells
        if planned.cell.technique.is_baseline
        and (planned.cell.model.name, planned.cell.precision.name, planned.cell.engine.name)
        == (cell.model.name, cell.precision.name, cell.engine.name)
    ]
    return [each.cell_key for each in sorted(alike, key=lambda one: (one.serving != cell.serving, one.cell_key))]
