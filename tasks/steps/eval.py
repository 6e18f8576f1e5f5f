"""One evaluation: its items asked, graded, scored and judged; it goes on behind the last stored answer.

A framework asks through the response log; what comes back is paired with what the engine really said.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple, cast

from configs.evals.suites import Evaluation
from configs.steps.eval import EvalStep
from tasks.client import RequestFailed
from tasks.context import StepContext
from tasks.evals.exchange import policy_of
from tasks.evals.grading import paired, sample_row, score_rows
from tasks.evals.hub import DATASETS
from tasks.evals.items import Prepared, prepared
from tasks.evals.progress import Pace, at_once, generated, progress
from tasks.evals.response_log import ResponseLog
from tasks.frameworks.job import Item, Job, Result, Task
from tasks.frameworks.process import FrameworkFailed, Frameworks
from tasks.guards.answers import Judge, gate_findings, in_full, no_thinking, step_findings, thinks
from tasks.host import environments
from tasks.host.environment_spec import user_cache
from warehouse.ledger.steps import EVAL_SAMPLES, EVAL_SCORES, EXCHANGES
from warehouse.ledger.tables import Row
from warehouse.ledger.verdicts import Finding, Judgement, Reason, judge

TELL_EVERY_S = 2.0  # pause between two lines of progress
IDLE_S = 900.0  # longest time in which a framework asks nothing and awaits nothing: imports and grading take minutes


def make_ready(spec: EvalStep, tell: Callable[[str], None]) -> None:
    """Install the framework, fetch the items, and see that answers can be checked, before an engine is started.

    Raises InstallError: the framework's environment can't be made. DatasetUnavailable: the items can't be had, or have
    the wrong shape. FrameworkFailed: checkers lack packages or data; the text says what, and where to get it.
    """
    environments.ensure(cast(environments.Name, spec.framework), tell=tell)
    ready = _items(spec, tell)
    if spec.suite.checked:
        tell(f"looking whether {spec.suite.title}'s checkers have all they need")
        asyncio.run(_checkable(spec, ready))


async def measure(ctx: StepContext, spec: EvalStep) -> list[Judgement]:
    """Ask every item that no earlier attempt asked, then grade and judge all of them."""
    ready = await asyncio.to_thread(_items, spec, _said)
    ctx.facts |= {"dataset_revision": ready.revision, "seed": spec.seed}
    known = await ctx.resume(EXCHANGES, ("sample", "request_hash", "occurrence"))
    async with _asker(ctx, spec, ready, known) as asking:
        asked = await asking.ask(ready.items, spec.samples)
    await _keep(ctx, spec, asked, ready, step_findings)
    found = step_findings(asked.rows, spec.suite, asked.exchanges)
    return [judge(None, None, [*found, _without_thinking(ctx, asked)])]


async def smoke(ctx: StepContext, spec: EvalStep, items: int) -> list[Finding | None]:
    """The first few items, once, through the same framework and response log; as many more if they look guessed."""
    ready = await asyncio.to_thread(_items, spec, _said)
    known = [row for row in ctx.recorded if row["suite"] == spec.step]
    async with _asker(ctx, spec, ready, known) as asking:
        for tried in (items, 2 * items):
            asked = await asking.ask(ready.items[:tried], samples=1)
            found = gate_findings(asked.rows, spec.suite, asked.exchanges)
            if {finding.reason for finding in found if finding.severity == "rejected"} != {Reason.AT_CHANCE}:
                break
    await _keep(ctx, spec, asked, ready, gate_findings)
    return [*found, _without_thinking(ctx, asked)]


def _without_thinking(ctx: StepContext, asked: Asked) -> Finding | None:
    return no_thinking(ctx.cell.model, [thinks(exchange) for exchange in asked.exchanges])


def _items(spec: EvalStep, tell: Callable[[str], None]) -> Prepared:
    """The step's items, fetched once and kept in the user's cache."""
    return prepared(spec, user_cache() / DATASETS, tell)


_said = partial(print, flush=True)


async def _checkable(spec: EvalStep, ready: Prepared) -> None:
    """Have nothing graded: the adapter looks for what grading would need, and says what is missing."""
    with TemporaryDirectory(prefix="specsweep-checkers-") as folder:
        job = Job("grade", task_of(spec.evaluation), ready.items, "", "", 0, 1, plain=True, workdir=folder)
        async with Frameworks(Path(folder)) as frameworks:
            await frameworks.get(spec.framework).run(job, "dependencies")


def task_of(entry: Evaluation) -> Task:
    """What the framework must know of the suite."""
    needed = entry.suite.columns.needed if entry.suite.columns else ()
    return Task(entry.suite.name, entry.task, entry.metric, entry.system, entry.suite.letters, needed)


class Asked(NamedTuple):
    """Graded answers, the exchange of each, and what the framework brought, one result per sample."""

    rows: list[Row]
    exchanges: list[Row]
    results: list[Result]


async def _keep(ctx: StepContext, spec: EvalStep, asked: Asked, ready: Prepared, findings: Judge) -> None:
    """Store answers and scores; on the node, what a rejection may not say elsewhere: a gated suite's answers."""
    await ctx.write(EVAL_SAMPLES, asked.rows)
    await ctx.write(EVAL_SCORES, score_rows(asked.rows, asked.results, spec, ready.revision))
    if said := in_full(findings, asked.rows, spec.suite, asked.exchanges):
        path = ctx.frameworks.workdir / f"{ctx.step}-{spec.step}-rejected.txt"
        path.write_text("\n".join(said) + "\n", encoding="utf-8")
        print(f"{spec.step}: what its answers say is in {path}", flush=True)


@asynccontextmanager
async def _asker(ctx: StepContext, spec: EvalStep, ready: Prepared, known: Sequence[Row]) -> AsyncIterator[Asker]:
    """Put a response log between the frameworks and the engine; what it heard is stored however this ends."""
    concurrency, why = at_once(spec, ctx.cell, await ctx.client.text("/metrics"))
    print(f"{spec.step}: {concurrency} requests at a time: {why}", flush=True)
    policy = policy_of(ctx.cell, spec)
    async with ResponseLog(ctx.client.base_url, policy, spec.step, known, partial(ctx.write, EXCHANGES)) as log:
        yield Asker(ctx, spec, ready, log, concurrency)


class Asker:
    """Asks items of one evaluation step; what was answered before, in this attempt or an earlier one, is replayed."""

    def __init__(self, ctx: StepContext, spec: EvalStep, ready: Prepared, log: ResponseLog, concurrency: int) -> None:
        self._ctx, self._spec, self._ready, self._log, self._concurrency = ctx, spec, ready, log, concurrency
        self._pace = Pace()

    async def ask(self, items: Sequence[Item], samples: int) -> Asked:
        """Every item, `samples` times, each time as a job of its own with a seed of its own.

        Raises RequestFailed: the engine is gone, stands still, or refuses a request. FrameworkFailed: the framework
        failed though the engine did not. PairingError: it graded what the engine did not answer to that item.
        """
        asked = Asked([], [], [])
        for sample in range(samples):
            self._log.answers.begin()
            result = await self._one_job(items, sample, answers=len(items) * samples)
            pairs = paired(result, items, self._log.answers.to, sample, quoted=not self._spec.suite.gated)
            asked.results.append(result)
            asked.rows.extend(sample_row(pair, self._spec, sample) for pair in pairs)
            asked.exchanges.extend(pair.exchange for pair in pairs)
        return asked

    async def _one_job(self, items: Sequence[Item], sample: int, answers: int) -> Result:
        spec, framework = self._spec, self._ctx.frameworks.get(self._spec.framework)
        job = Job(
            do="ask",
            task=task_of(spec.evaluation),
            items=tuple(items),
            base_url=self._log.url(sample),
            model=self._ctx.cell.model.name,
            max_tokens=spec.max_tokens,
            concurrency=self._concurrency,
            plain=self._ready.plain,
            workdir=str(self._ctx.frameworks.workdir / spec.framework / spec.step),
        )
        asking = asyncio.create_task(framework.run(job, f"{self._ctx.step}-{spec.step}-{len(items)}-{sample}"))
        failing = asyncio.create_task(self._log.failed())
        telling = asyncio.create_task(self._tell(answers))
        try:
            await asyncio.wait({asking, failing, telling}, return_when=asyncio.FIRST_COMPLETED)
            if failing.done():
                raise RequestFailed(failing.result())
            if telling.done():
                telling.result()
            return asking.result()
        except FrameworkFailed as error:
            if self._log.refusal is not None:
                raise RequestFailed(f"{spec.step}: the engine refused a request: {self._log.refusal}") from error
            if self._log.trouble is not None:  # frameworks often say no more than "503"
                raise RequestFailed(f"{spec.step}: {self._log.trouble}; {error}") from error
            raise
        finally:
            for task in (asking, failing, telling):
                task.cancel()
            await asyncio.gather(asking, failing, telling, return_exceptions=True)

    async def _tell(self, answers: int) -> None:
        """Show progress for as long as there is any. Raises FrameworkFailed after `IDLE_S` without."""
        spec, seen, since = self._spec, (-1, -1), time.monotonic()
        while True:
            count = self._log.count
            if count.in_flight or (count.asked, count.replayed) != seen:
                seen, since = (count.asked, count.replayed), time.monotonic()
            elif time.monotonic() - since > IDLE_S:
                raise FrameworkFailed(f"{spec.framework} has asked nothing for {IDLE_S:.0f} s, and waits for no answer")
            tok_s = self._pace.tok_s(time.monotonic(), generated(count))
            self._ctx.tell(progress(count, answers, spec.expected_tokens, spec.max_tokens, tok_s))
            await asyncio.sleep(TELL_EVERY_S)
