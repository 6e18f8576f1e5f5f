"""Prompts: each named workload at each concurrency, its requests sent together, as often as asked.

Units and formulas:
    wall_s:   of a request, sent to last byte. Of a window, first request sent to last byte of the last answer.
    tok/s:    completion tokens by usage over the window's seconds. For chars/s: its characters over the same.

A window is one repeat. Not streamed: nothing but the whole answer is timed, thinking included. An engine that is asked
its prompts again must not remember them, whatever it counts: some like them are asked twice (`asked_twice.py`). A
program in an answer is run behind the window's clock, by `tasks.sandbox` and by nobody else.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, NamedTuple

from configs.cell import Cell, Gpu
from configs.steps.prompts import PromptsStep, Workload, condition_name
from configs.steps.smoke import OUTPUT_TOKENS
from tasks.client import Ready, StreamReply
from tasks.context import StepContext
from tasks.prompts import Prompt
from tasks.sandbox.run import Programs
from tasks.timing.asked_twice import CountedPrompts, ask_twice
from tasks.timing.conditions import TimedCondition, Window, measure_conditions, tried, window_of
from tasks.timing.loops import paces_of
from tasks.timing.timed import Asked, Row, ready_of
from tasks.timing.verdict import Paces, Work, verdict
from warehouse.ledger.timed_tables import PROMPTS
from warehouse.ledger.verdicts import Finding, Judgement

MODE = "natural"  # answers end by themselves or at the cap; they are not streamed


class Copies(NamedTuple):
    """Copies of a workload's prompt that are sent together."""

    workload: Workload
    number: int

    @property
    def condition(self) -> str:
        """What its rows are called."""
        return condition_name(self.workload.name, self.number)

    def columns(self) -> Row:
        """What its rows have in common."""
        return {
            "condition": self.condition,
            "mode": MODE,
            "output_tokens": self.workload.max_tokens,
            "concurrency": self.number,
            "workload": self.workload.name,
            "language": self.workload.language,
        }


async def measure(ctx: StepContext, spec: PromptsStep) -> list[Judgement]:
    """Measure every condition that no earlier attempt on this machine has finished, one concurrency after the other."""
    named = CountedPrompts((each.name, prompt_of(each)) for each in spec.workloads)
    run = _Run(spec, Programs(unfenced=spec.unfenced), named)
    conditions = [_Condition(ctx, run, Copies(each, n)) for n in spec.concurrencies for each in spec.workloads]
    measured = zip(conditions, await measure_conditions(ctx, PROMPTS, conditions), strict=True)
    again = await ask_twice(ctx, [prompt_of(each) for each in spec.workloads])
    return [judge_workload(ctx.cell, ctx.planned.gpu, each.name, *rows, again) for each, rows in measured]


class _Run(NamedTuple):
    """What the conditions of a step share."""

    spec: PromptsStep
    programs: Programs
    counted: CountedPrompts


class _Condition(TimedCondition):
    """A workload at a concurrency."""

    def __init__(self, ctx: StepContext, run: _Run, copies: Copies) -> None:
        super().__init__(ctx, copies.condition, copies.number, run.spec.warmup)
        self._run, self._copies = run, copies
        self._outcomes: set[str] = set()  # what became of the programs of the last window

    def next_window(self, windows: Sequence[Row]) -> int | None:
        there = {row["repeat"] for row in windows}
        return next((each for each in range(self._run.spec.repeats) if each not in there), None)

    async def warm_up(self) -> list[str]:
        """Before the first of an engine start it counts the prompts, so that one that it cuts is seen."""
        await self._run.counted.count(self.ctx)
        return await super().warm_up()

    async def warming(self, number: int) -> list[Ready]:
        """Cut off where the shortest workload is: what compiles does so per prompt and load.

        With the windows' own prompt, which repeats ask again, too: nothing may remember it, and guards see if it does.
        """
        return ready_of(self._asked(self._run.spec.warmup_tokens))

    async def measure(self, wanted: int) -> Window:
        async def once(_: str) -> Window:
            asked = self._asked(self._copies.workload.max_tokens)
            return await window_of(self.ctx, asked, self._copies.columns() | {"repeat": wanted})

        window = await self.until_kept_up(once, f"repeat-{wanted}")
        await asyncio.to_thread(self._check, window)  # programs take seconds: heartbeats go on meanwhile
        self._outcomes = {row["program"] for row in window.requests} - {None}
        return window

    def _asked(self, max_tokens: int) -> list[Asked]:
        workload, client = self._copies.workload, self.ctx.client
        counted = self._run.counted.of(workload.name)
        return [
            Asked(client.ready(_body(self.ctx, workload, max_tokens)), {"number": n, "counted_prompt_tokens": counted})
            for n in range(self._copies.number)
        ]

    def _check(self, window: Window) -> None:
        """Run the programs in a window's answers; none is taken from thinking."""
        for row, (_, reply) in zip(window.requests, window.load.answered.each, strict=True):
            answer = reply.text if isinstance(reply, StreamReply) else reply.body
            row.update(self._run.programs.columns(self._copies.workload, answer))

    def size(self, windows: Sequence[Row]) -> tuple[int, int]:
        """In windows."""
        return len(windows), self._run.spec.repeats

    def line(self, last: Row) -> tuple[str, float | None]:
        rate = last["completion_tokens"] / last["wall_s"]
        programs = "".join(f", program {outcome}" for outcome in sorted(self._outcomes))
        return f"{self.name} {last['repeat'] + 1}/{self._run.spec.repeats}: {rate:.0f} tok/s{programs}", rate


def prompt_of(workload: Workload) -> Prompt:
    """A workload's prompt as it is sent."""
    thinks = workload.enable_thinking
    return Prompt(workload.prompt, {} if thinks is None else {"enable_thinking": thinks})


def _body(ctx: StepContext, workload: Workload, max_tokens: int, **more: Any) -> dict[str, Any]:
    return ctx.client.request(prompt_of(workload), max_tokens, fixed=False, token_ids=True, **more)


def judge_workload(
    served: Cell,
    gpu: Gpu,
    condition: str,
    windows: Sequence[Row],
    requests: Sequence[Row],
    again: Sequence[Finding | None] = (),
) -> Judgement:
    """What the guards say about a condition. That a program is wrong is a result, and no guard's matter.

    Every repeat sends the same prompts, and drafts are worth the same on them. So repeats are compared by their
    tokens/s. A canvas takes its steps however much of it the answer fills, and a sampled answer fills it by chance.
    Judged by tokens, a steady machine would be accused. A canvas counts its own steps. `again` are the findings about
    an engine that is asked prompts again.
    """
    work = Work(served, gpu, windows, requests, windows[0]["concurrency"])
    found = [*work.done(), work.too_fast(), work.slow_alone(), *work.answers(), *again]
    if served.technique.denoises:
        paces = Paces(paces_of(windows))
    else:
        paces = Paces([row["completion_tokens"] / row["wall_s"] for row in windows], None, "tokens/s")
    return verdict(condition, MODE, found, windows, paces=paces)


async def smoke(ctx: StepContext, spec: PromptsStep, items: int) -> list[Finding | None]:
    """The first few workloads, one at a time, with short answers; no program is run."""
    asked: list[Asked] = []
    for workload in spec.workloads[:items]:
        cap = min(OUTPUT_TOKENS, workload.max_tokens)
        ready = ctx.client.ready(_body(ctx, workload, cap, logprobs="written"))
        own = Copies(workload, 1).columns() | {"condition": "smoke", "output_tokens": cap, "number": len(asked)}
        asked.append(Asked(ready, own))
    rows, counted = await tried(ctx, PROMPTS, asked, {"repeat": 0}, "workload")
    return Work(ctx.cell, ctx.planned.gpu, [], rows, 1).smoke(counted)
