"""One evaluation step: its items asked, graded, scored and judged; it goes on behind the last stored answer."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import cast

from configs.evals.spec import EvalStep
from tasks.context import StepContext
from tasks.evals.asking import Asked, asker
from tasks.evals.data.items import Prepared, prepared
from tasks.evals.grading import score_rows
from tasks.guards.answers import Judge, gate_findings, in_full, step_findings
from tasks.guards.finding import Finding, Judgement, judge
from tasks.host import environments
from tasks.host.environment_spec import user_cache
from warehouse.evals.tables import EVAL_SAMPLES, EVAL_SCORES, EXCHANGES
from warehouse.verdicts import Reason

DATASETS = "datasets"
"""Folder of the user's cache in which fetched items are kept."""


def make_ready(spec: EvalStep, tell: Callable[[str], None]) -> None:
    """Install the framework and fetch the items, before an engine is started.

    Raises:
        InstallError: the framework's environment can't be made.
        DatasetUnavailable: the items can't be had, or have the wrong shape.
    """
    environments.ensure(cast(environments.Name, spec.framework), tell=tell)
    items_of(spec, tell)


async def measure(ctx: StepContext, spec: EvalStep) -> list[Judgement]:
    """Ask every item that no earlier attempt asked, then grade and judge all of them."""
    ready = await asyncio.to_thread(items_of, spec, _said)
    ctx.facts |= {"dataset_revision": ready.revision, "seed": spec.seed}
    known = await ctx.resume(EXCHANGES, ("sample", "request_hash", "occurrence"))
    async with asker(ctx, spec, ready, known) as asking:
        asked = await asking.ask(ready.items, spec.samples)
    await _write(ctx, spec, asked, ready.revision)
    _keep_in_full(ctx, spec, asked, step_findings)
    return [judge(None, None, step_findings(asked.rows, spec.suite, asked.exchanges))]


async def smoke(ctx: StepContext, spec: EvalStep, items: int) -> list[Finding | None]:
    """The first few items, once, through the same framework and the same tape; as many more if they look guessed."""
    ready = await asyncio.to_thread(items_of, spec, _said)
    known = [row for row in ctx.recorded if row["suite"] == spec.step]
    async with asker(ctx, spec, ready, known) as asking:
        for tried in (items, 2 * items):
            asked = await asking.ask(ready.items[:tried], samples=1)
            found = gate_findings(asked.rows, spec.suite, asked.exchanges)
            if {finding.reason for finding in found if finding.severity == "rejected"} != {Reason.AT_CHANCE}:
                break
    await _write(ctx, spec, asked, ready.revision)
    _keep_in_full(ctx, spec, asked, gate_findings)
    return [*found]


async def _write(ctx: StepContext, spec: EvalStep, asked: Asked, revision: str) -> None:
    await ctx.write(EVAL_SAMPLES, asked.rows)
    await ctx.write(EVAL_SCORES, score_rows(asked.rows, asked.results, spec, revision))


def _keep_in_full(ctx: StepContext, spec: EvalStep, asked: Asked, findings: Judge) -> None:
    """Keep on the node what a rejection may not say elsewhere: the words of a gated suite's answers."""
    if said := in_full(findings, asked.rows, spec.suite, asked.exchanges):
        path = ctx.frameworks.workdir / f"{ctx.step}-{spec.step}-rejected.txt"
        path.write_text("\n".join(said) + "\n", encoding="utf-8")
        print(f"{spec.step}: what its answers say is in {path}", flush=True)


def items_of(spec: EvalStep, tell: Callable[[str], None]) -> Prepared:
    """The step's items, fetched once and kept in the user's cache.

    Raises:
        DatasetUnavailable: the items can't be had, or have the wrong shape.
    """
    return prepared(spec, user_cache() / DATASETS, tell)


_said = partial(print, flush=True)
