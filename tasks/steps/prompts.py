"""Prompts: each named workload at each concurrency, its requests sent together, as often as asked.

Units and formulas:
    wall_s    of a request: sent to last byte; of a window: first request sent to last byte of the last answer.
    tok/s     completion tokens by usage over the window's seconds; chars/s its characters over the same.

A window is one repeat. Not streamed: nothing but the whole answer is timed, thinking included. What was measured of a
condition is kept with its last repeat; one that a lost node had begun is measured again, since another start of the
engine would be in its figure.

An engine that is asked its prompts again must not remember them, whatever it counts: some like them are asked twice
(`asked_twice.py`).

A program in an answer is run behind the window's clock, by `tasks.sandbox` and by nobody else.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

from configs.steps.prompts import PromptsStep, condition_name
from configs.steps.smoke import OUTPUT_TOKENS
from configs.workloads import Workload
from tasks.client import Ready, Reply, StreamReply
from tasks.context import Progress, StepContext
from tasks.guards.finding import Finding, Judgement
from tasks.prompts import Prompt
from tasks.sandbox.run import NOTHING, Programs
from tasks.timing.asked_twice import ask_twice, counted_tokens
from tasks.timing.finished import finished
from tasks.timing.timed import Timed, timed, untimed, with_failures
from tasks.timing.tries import measured
from tasks.timing.windows import request_row
from tasks.timing.workload_verdict import judge_workload, smoke_findings
from warehouse.steps.prompts import MODE, PROMPT_REQUESTS, PROMPT_WINDOWS

Row = dict[str, Any]

WINDOW = ("condition", "repeat", "attempt")
"""What identifies a window, and ties requests to it."""


class Shape(NamedTuple):
    """A workload at a concurrency."""

    workload: Workload
    concurrency: int

    @property
    def condition(self) -> str:
        """What its rows are called."""
        return condition_name(self.workload.name, self.concurrency)

    def columns(self) -> Row:
        """What its rows have in common."""
        return {
            "condition": self.condition,
            "mode": MODE,
            "output_tokens": self.workload.max_tokens,
            "concurrency": self.concurrency,
            "workload": self.workload.name,
            "language": self.workload.language,
        }


def shapes_of(spec: PromptsStep) -> list[Shape]:
    """All that is measured, one concurrency after the other."""
    return [Shape(workload, number) for number in spec.concurrencies for workload in spec.workloads]


async def measure(ctx: StepContext, spec: PromptsStep) -> list[Judgement]:
    """Measure every condition that no earlier attempt on this machine has finished."""
    whole = [(each.condition, partial(_is_whole, spec)) for each in shapes_of(spec)]
    run = _Run(ctx, spec, *await finished(ctx, PROMPT_WINDOWS, PROMPT_REQUESTS, WINDOW, whole))
    for shape in [each for each in shapes_of(spec) if not run.has(each)]:
        beside = await run.warm_up(shape)
        for repeat in range(spec.repeats):
            await run.measure(shape, repeat, beside)
            beside = []
    again = await ask_twice(ctx, [prompt_of(each) for each in spec.workloads])
    return [run.judged(shape, again) for shape in shapes_of(spec)]


def _is_whole(spec: PromptsStep, windows: Sequence[Row]) -> bool:
    return {row["repeat"] for row in windows} >= set(range(spec.repeats))


class _Run:
    """A prompts step that is being measured: what is there, and what is told of it."""

    def __init__(self, ctx: StepContext, spec: PromptsStep, windows: list[Row], requests: list[Row]) -> None:
        self._ctx, self._spec = ctx, spec
        self._windows, self._requests = windows, requests
        self._programs = Programs(unfenced=spec.unfenced)
        self._total = len(shapes_of(spec)) * spec.repeats
        self._counted: dict[str, int] | None = None
        """Tokens of each workload's prompt, as the engine counts them; None: it wasn't asked yet."""

    def has(self, shape: Shape) -> bool:
        """Whether the condition is finished."""
        return any(row["condition"] == shape.condition for row in self._windows)

    def judged(self, shape: Shape, again: Sequence[Finding | None]) -> Judgement:
        """What the guards say about a condition, whose windows are all there, and what is said of asking again."""
        windows, asked = (
            [row for row in rows if row["condition"] == shape.condition] for rows in (self._windows, self._requests)
        )
        return judge_workload(self._ctx.cell, self._ctx.planned.gpu, shape.condition, MODE, windows, asked, again)

    async def warm_up(self, shape: Shape) -> list[str]:
        """Untimed rounds, cut off where the shortest workload is: what compiles does so per prompt and load.

        Before the first of them the engine counts the prompts, so that one that it cuts is seen.

        With the windows' own prompt, which repeats ask again, too: nothing may remember it, and guards see if it does.

        Returns:
            A sentence for each request that failed.
        """
        if self._counted is None:
            prompts = ((each.name, prompt_of(each)) for each in self._spec.workloads)
            self._counted = await counted_tokens(self._ctx, prompts)
        failures: list[str] = []
        for number in range(self._spec.warmup):
            line = f"{shape.condition}: warm-up {number + 1}/{self._spec.warmup}"
            self._ctx.tell(Progress(self._percent(), line))
            requests = self._ready(shape, self._spec.warmup_tokens)
            failures += (await untimed(self._ctx, "warm-up", requests, shape.concurrency)).failures
        return failures

    async def measure(self, shape: Shape, repeat: int, beside: Sequence[str]) -> None:
        """One window, its programs, and their rows; what failed `beside` it is told with it."""

        async def once(_: int) -> tuple[Row, Timed]:
            load = await timed(self._ctx, self._ready(shape, shape.workload.max_tokens), shape.concurrency)
            return {**same, **load.columns()}, load

        same = {**shape.columns(), "repeat": repeat}
        counted = {"counted_prompt_tokens": (self._counted or {}).get(shape.workload.name)}
        window, load = await measured(once)
        # long texts take seconds to look through, and programs to run: heartbeats go on meanwhile
        rows = await asyncio.to_thread(_rows, load, shape.workload, self._programs, same | counted)
        window = with_failures({**window, "chars": sum(row["chars"] for row in rows)}, beside)
        await self._ctx.write(PROMPT_REQUESTS, rows)
        await self._ctx.write(PROMPT_WINDOWS, [window])  # behind its requests: it says that they are all there
        self._requests += rows
        self._windows.append(window)
        self._ctx.tell(self._progress(window, rows))

    def _ready(self, shape: Shape, max_tokens: int) -> list[Ready]:
        client = self._ctx.client
        body = client.request(prompt_of(shape.workload), max_tokens, fixed=False, token_ids=True)
        return [client.ready(body) for _ in range(shape.concurrency)]

    def _progress(self, window: Row, rows: Sequence[Row]) -> Progress:
        rate = window["completion_tokens"] / window["wall_s"]
        outcomes = sorted({str(row["program"]) for row in rows if row["program"] is not None})
        programs = "".join(f", program {outcome}" for outcome in outcomes)
        line = f"{window['condition']} {window['repeat'] + 1}/{self._spec.repeats}: {rate:.0f} tok/s{programs}"
        return Progress(self._percent(), line, rate)

    def _percent(self) -> float:
        return 100 * len(self._windows) / self._total


def prompt_of(workload: Workload) -> Prompt:
    """A workload's prompt as it is sent."""
    thinks = workload.enable_thinking
    return Prompt(workload.prompt, {} if thinks is None else {"enable_thinking": thinks})


def _rows(load: Timed, workload: Workload, programs: Programs | None, same: Row) -> list[Row]:
    """The answers as rows of `prompt_requests`; without `programs` none of them is run."""
    answered = load.answered
    return [
        {
            **same,
            **request_row(reply),
            "number": place,
            "sent_s": span.sent_s - load.begun_s,
            **(NOTHING if programs is None else programs.columns(workload, _body(reply))),
        }
        for place, (span, reply) in zip(answered.places, answered.each, strict=True)
    ]


def _body(reply: Reply | StreamReply) -> str:
    """An answer without its thinking, which a program is never taken from."""
    return reply.text if isinstance(reply, StreamReply) else reply.body


async def smoke(ctx: StepContext, spec: PromptsStep, items: int) -> list[Finding | None]:
    """The first few workloads, one at a time, with short answers; no program is run."""
    tried = spec.workloads[:items]
    before = await ctx.counters()
    rows: list[Row] = []
    for number, workload in enumerate(tried, 1):
        cap = min(OUTPUT_TOKENS, workload.max_tokens)
        body = ctx.client.request(prompt_of(workload), cap, fixed=False, token_ids=True, logprobs="written")
        reply = await ctx.client.complete(body)
        shape = Shape(workload, 1).columns() | {"condition": "smoke", "output_tokens": cap, "repeat": 0}
        rows.append({**shape, **request_row(reply), **NOTHING, "number": number - 1})
        ctx.tell(Progress(100 * number / len(tried), f"workload {number}/{len(tried)}"))
    counted = await ctx.counters_after(before, len(tried))
    await ctx.write(PROMPT_REQUESTS, rows)
    return smoke_findings(ctx.cell, rows, counted)
