"""One framework asks items of a suite through the tape; what comes back is paired with what the engine really said."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import NamedTuple

from configs.evals.spec import EvalStep
from tasks.client import RequestFailed
from tasks.context import StepContext
from tasks.evals.concurrency import at_once
from tasks.evals.data.items import Prepared
from tasks.evals.grading import sample_row
from tasks.evals.pairing import paired
from tasks.evals.policy import policy_of
from tasks.evals.progress import Pace, generated, progress
from tasks.evals.tape import Tape
from tasks.frameworks.job import Item, Job, Result
from tasks.frameworks.process import FrameworkFailed
from warehouse.evals.tables import EXCHANGES
from warehouse.parts import Row

TELL_EVERY_S = 2.0
"""Pause between two lines of progress."""

IDLE_S = 900.0
"""Longest time in which a framework asks nothing though nothing is being answered: imports and grading take minutes."""


class Asked(NamedTuple):
    """Graded answers, the exchange of each, and what the framework brought, one result per sample."""

    rows: list[Row]
    exchanges: list[Row]
    results: list[Result]


class Asker:
    """Asks items of one evaluation step; what was answered before, in this attempt or an earlier one, is replayed."""

    def __init__(self, ctx: StepContext, spec: EvalStep, prepared: Prepared, tape: Tape, concurrency: int) -> None:
        self._ctx, self._spec, self._prepared, self._tape, self._concurrency = ctx, spec, prepared, tape, concurrency
        self._pace = Pace()

    async def ask(self, items: Sequence[Item], samples: int) -> Asked:
        """Every item, `samples` times, each time as a job of its own with a seed of its own.

        Raises:
            RequestFailed: the engine is gone, stands still, or refuses a request.
            FrameworkFailed: the framework failed though the engine did not.
            PairingError: the framework graded something that the engine did not answer to that item.
        """
        asked = Asked([], [], [])
        for sample in range(samples):
            self._tape.begin()
            result = await self._one_job(items, sample, answers=len(items) * samples)
            pairs = paired(result, items, self._tape.answers_to, sample, quoted=not self._spec.suite.gated)
            asked.results.append(result)
            asked.rows.extend(sample_row(pair, self._spec, sample) for pair in pairs)
            asked.exchanges.extend(pair.exchange for pair in pairs)
        return asked

    async def _one_job(self, items: Sequence[Item], sample: int, answers: int) -> Result:
        spec, framework = self._spec, self._ctx.frameworks.get(self._spec.framework)
        job = Job(
            do="ask",
            suite=spec.suite.name,
            items=tuple(items),
            base_url=self._tape.url(sample),
            model=self._ctx.cell.model.name,
            max_tokens=spec.max_tokens,
            concurrency=self._concurrency,
            plain=self._prepared.plain,
            workdir=str(self._ctx.frameworks.workdir / spec.framework / spec.step),
        )
        asking = asyncio.create_task(framework.run(job, f"{self._ctx.step}-{spec.step}-{len(items)}-{sample}"))
        failing = asyncio.create_task(self._tape.failed())
        telling = asyncio.create_task(self._tell(answers))
        try:
            await asyncio.wait({asking, failing, telling}, return_when=asyncio.FIRST_COMPLETED)
            if failing.done():
                raise RequestFailed(failing.result())
            if telling.done():
                telling.result()
            return asking.result()
        except FrameworkFailed as error:
            if self._tape.refusal is not None:
                raise RequestFailed(f"{spec.step}: the engine refused a request: {self._tape.refusal}") from error
            if self._tape.trouble is not None:  # frameworks often say no more than "503"
                raise RequestFailed(f"{spec.step}: {self._tape.trouble}; {error}") from error
            raise
        finally:
            for task in (asking, failing, telling):
                task.cancel()
            await asyncio.gather(asking, failing, telling, return_exceptions=True)

    async def _tell(self, answers: int) -> None:
        """Show progress for as long as there is any.

        Raises:
            FrameworkFailed: the framework has asked nothing for `IDLE_S`, and waits for no answer.
        """
        spec, seen, since = self._spec, (-1, -1), time.monotonic()
        while True:
            count = self._tape.count
            if count.in_flight or (count.asked, count.replayed) != seen:
                seen, since = (count.asked, count.replayed), time.monotonic()
            elif time.monotonic() - since > IDLE_S:
                raise FrameworkFailed(f"{spec.framework} has asked nothing for {IDLE_S:.0f} s, and waits for no answer")
            tok_s = self._pace.tok_s(time.monotonic(), generated(count))
            self._ctx.tell(progress(count, answers, spec.expected_tokens, spec.max_tokens, tok_s))
            await asyncio.sleep(TELL_EVERY_S)


@asynccontextmanager
async def asker(ctx: StepContext, spec: EvalStep, prepared: Prepared, known: Sequence[Row]) -> AsyncIterator[Asker]:
    """Put a tape between the frameworks and the engine; what it heard is stored when this ends, however it ends."""
    concurrency, why = at_once(spec, ctx.cell, await ctx.client.text("/metrics"))
    print(f"{spec.step}: {concurrency} requests at a time: {why}", flush=True)

    async def write(rows: Sequence[Row]) -> None:
        await ctx.write(EXCHANGES, rows)

    tape = Tape(ctx.client.base_url, policy_of(ctx.cell, spec), spec.step, known, write)
    async with tape:
        yield Asker(ctx, spec, prepared, tape, concurrency)
