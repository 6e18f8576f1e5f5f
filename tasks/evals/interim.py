"""An evaluation with several looks ends early where its verdict against the AR cell is clear.

It ends only on a comparison that consolidation will make as well: with the same AR cell, of rows that are ok, over the
same questions, read by the same readers.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import NamedTuple

from configs.evals.spec import EvalStep
from configs.schema import Plan, PlannedCell
from tasks.context import StepContext
from tasks.guards.answers import step_findings
from warehouse.consolidate.baseline import baseline_among
from warehouse.evals.tables import EVAL_SAMPLES
from warehouse.parts import Row
from warehouse.statistics.paired import compare
from warehouse.statistics.sequential import levels, stop


class Asked(NamedTuple):
    """What has to be the same of an item in both arms."""

    answers: int
    prompts: frozenset[str]
    readers: frozenset[int]


class Item(NamedTuple):
    """The answers to one item."""

    asked: Asked
    score: float
    """Share of right ones."""


async def early_verdict(ctx: StepContext, spec: EvalStep, look: int, rows: Sequence[Row]) -> str | None:
    """Why the step may end after this look, in one sentence; None: it goes on.

    The AR cell itself always answers everything, and so does a cell whose AR cell has not committed the step yet.
    """
    if ctx.cell.technique.is_baseline or step_findings(rows, spec.suite):
        return None
    plan = await asyncio.to_thread(ctx.plan)
    theirs = await asyncio.to_thread(_baseline, ctx, spec.step, plan)
    ours = _items(rows)
    common = sorted(set(ours) & set(theirs))
    if len(common) < len(ours) or any(ours[item].asked != theirs[item].asked for item in common):
        return None
    identity = f"{ctx.cell.cell_key}/{spec.step}/{look}"
    level = levels(spec.looks)[look - 1]
    arms = [theirs[item].score for item in common], [ours[item].score for item in common]
    found = compare(*arms, spec.samples, spec.margin, identity, level)
    conclusion = stop(found, level, comparisons=_comparisons(plan, spec.step))
    if conclusion is None:
        return None
    share = f"{len(common)} items, look {look} of {len(spec.looks)}, level {level:.4f}"
    return f"ended early, {conclusion} ({share})"


def _items(rows: Sequence[Row]) -> dict[str, Item]:
    by_item: dict[str, list[Row]] = {}
    for row in rows:
        by_item.setdefault(row["item_id"], []).append(row)
    return {
        item: Item(
            Asked(
                len(answers),
                frozenset(row["prompt_hash"] for row in answers),
                frozenset(row["extractor_version"] for row in answers),
            ),
            sum(row["correct"] for row in answers) / len(answers),
        )
        for item, answers in by_item.items()
    }


def _baseline(ctx: StepContext, step: str, plan: Plan) -> dict[str, Item]:
    """The AR cell's answers, as last graded; empty where it has not committed the step, or its row isn't ok.

    Of several AR cells only the one that consolidation takes first: another one's verdict might not be the last.
    """
    baseline = baseline_among(ctx.planned, _with_step(plan, step))
    commit = None if baseline is None else ctx.committed(baseline.cell.cell_key, step)
    if commit is None or commit.verdict != "ok":
        return {}
    return _items(ctx.committed_rows(commit, EVAL_SAMPLES))


def _comparisons(plan: Plan, step: str) -> int:
    """Cells of the run that are compared with an AR cell by this step: Holm's family."""
    return max(1, sum(not planned.cell.technique.is_baseline for planned in _with_step(plan, step)))


def _with_step(plan: Plan, step: str) -> list[PlannedCell]:
    return [planned for planned in plan.cells if any(spec.step == step for spec in planned.steps)]
