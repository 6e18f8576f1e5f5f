"""Load: every prompt of a suite, streamed at each concurrency, in a closed loop.

Units and formulas:
    ttft_ms   request sent to first token.
    tpot_ms   (last token - first token) / (tokens after the first chunk): time per output token, and so the inter-token
              latency of an answer, also where chunks hold several tokens. vLLM's `bench serve` divides by tokens - 1,
              which is too small a time where the first chunk held more than one, as with a draft or a canvas.
    chunk_ms  (last token - first token) / (chunks - 1): what a reader waits between two pieces of text.
    wall_s    request sent to last byte, the end-to-end latency.

Acceptance is counted by the engine before and after. One request at a time, a window holds one category only, and its
acceptance is exact. With several in flight categories are mixed, as real load is, and no counter can tell them apart:
then acceptance is the whole suite's, and the categories' is left null. (A streamed answer brings no metrics of its own
through this client.)
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import aclosing
from functools import partial
from itertools import groupby
from typing import Any

from configs.prompt_suites import SPEED_BENCH
from configs.steps.load import LoadStep, condition_name
from configs.steps.smoke import OUTPUT_TOKENS
from tasks.context import Progress, StepContext
from tasks.evals.progress import Pace
from tasks.evals.run import DATASETS
from tasks.guards.finding import Finding, Judgement
from tasks.host import environments
from tasks.host.environment_spec import cache_folder
from tasks.prompt_suites.suite import PromptSuite, SuitePrompt, prompt_suite
from tasks.timing.client_watch import ClientWatch
from tasks.timing.closed_loop import Answered, closed_loop
from tasks.timing.load_verdict import judge_concurrency, smoke_findings
from tasks.timing.windows import engine_columns, request_row
from warehouse.steps.load import LOAD_REQUESTS, LOAD_WINDOWS, MODE

FLUSH_S = 30.0
"""How often answers are stored while a window runs: what a lost machine costs at the most."""

Row = dict[str, Any]


def suite_of(spec: LoadStep) -> PromptSuite:
    """The step's prompts, fetched once and kept in the user's cache.

    Raises:
        DatasetUnavailable: they can't be had, or have the wrong shape.
    """
    return prompt_suite(spec, cache_folder().parent / DATASETS, partial(print, flush=True))


def make_ready(spec: LoadStep, tell: Callable[[str], None]) -> None:
    """Have the prompts before an engine is started.

    Raises:
        InstallError: what fetches them can't be installed.
        DatasetUnavailable: they can't be had, or have the wrong shape.
    """
    if spec.dataset == SPEED_BENCH:
        environments.ensure("lm-eval", tell=tell)
    prompt_suite(spec, cache_folder().parent / DATASETS, tell)


async def measure(ctx: StepContext, spec: LoadStep) -> list[Judgement]:
    """Send every prompt at every concurrency that no earlier attempt on this machine has an answer to."""
    suite = await asyncio.to_thread(suite_of, spec)
    ctx.facts |= {"dataset_revision": suite.revision}
    requests = [row for row in await ctx.resume(LOAD_REQUESTS, (*_REQUEST, "attempt")) if ctx.is_here(row)]
    windows = [row for row in await ctx.resume(LOAD_WINDOWS, (*_WINDOW, "attempt")) if ctx.is_here(row)]
    run = _Run(ctx, spec, suite, requests, windows)
    for concurrency in spec.concurrencies:
        await run.measure(concurrency)
    said: list[Judgement] = []
    for concurrency in spec.concurrencies:
        asked = [ctx.stamp(row) for row in _at(concurrency, requests)]
        said += judge_concurrency(ctx.cell, ctx.planned.gpu, concurrency, _at(concurrency, windows), asked)
    return said


_REQUEST = ("concurrency", "prompt_id")
_WINDOW = ("concurrency", "category")


def _at(concurrency: int, rows: Sequence[Row]) -> list[Row]:
    return [row for row in rows if row["concurrency"] == concurrency]


class _Run:
    """A load step that is being measured: what is there, and what is told of it."""

    def __init__(
        self, ctx: StepContext, spec: LoadStep, suite: PromptSuite, requests: list[Row], windows: list[Row]
    ) -> None:
        self._ctx, self._spec, self._suite = ctx, spec, suite
        self._requests, self._windows = requests, windows
        self._total = len(suite.prompts) * len(spec.concurrencies)

    async def measure(self, concurrency: int) -> None:
        """The prompts that are left at a concurrency: all at once, or one at a time category by category."""
        known = {row["prompt_id"] for row in _at(concurrency, self._requests)}
        left = [each for each in self._suite.prompts if each.prompt_id not in known]
        if not left:
            return
        await self._warm_up(left, concurrency)
        if concurrency > 1:
            await self._window(left, concurrency, None)
            return
        by_category = sorted(left, key=lambda each: each.category)
        for category, prompts in groupby(by_category, key=lambda each: each.category):
            await self._window([*prompts], concurrency, category)

    async def _warm_up(self, prompts: Sequence[SuitePrompt], concurrency: int) -> None:
        """Untimed requests, with the window's own prompts: the prefix cache is off, and a guard sees if it isn't."""
        bodies = [self._body(prompts[number % len(prompts)]) for number in range(self._spec.warmup * concurrency)]
        name = condition_name(concurrency)
        async with aclosing(closed_loop(self._ctx.client.stream, bodies, concurrency)) as answers:
            async for _ in answers:
                self._ctx.tell(Progress(self._percent(), f"{name}: warm-up"))

    async def _window(self, prompts: Sequence[SuitePrompt], concurrency: int, category: str | None) -> None:
        ctx = self._ctx
        bodies = [self._body(each) for each in prompts]
        clock = asyncio.get_running_loop().time
        rows: list[Row] = []
        stored = 0
        before = await ctx.counters()
        async with ClientWatch() as watch, aclosing(closed_loop(ctx.client.stream, bodies, concurrency)) as answers:
            begun_s = stored_s = clock()
            pace = Pace()
            pace.tok_s(begun_s, 0)
            async for answer in answers:
                rows.append(_row(prompts[answer.number], answer, concurrency, self._spec.max_tokens, begun_s))
                self._tell(rows, len(prompts), concurrency, category, pace.tok_s(clock(), _tokens(rows)))
                if clock() - stored_s >= FLUSH_S:
                    await ctx.write(LOAD_REQUESTS, rows[stored:])
                    stored, stored_s = len(rows), clock()
            wall_s = clock() - begun_s
        counted = await ctx.counters_after(before, len(prompts))
        window = {
            "condition": condition_name(concurrency),
            "mode": MODE,
            "concurrency": concurrency,
            "output_tokens": self._spec.max_tokens,
            "category": category,
            "requests": len(rows),
            "wall_s": wall_s,
            "client_late_ms": watch.lateness.late_ms,
            "client_late_share": watch.lateness.share,
            "prompt_tokens": sum(row["prompt_tokens"] for row in rows),
            "completion_tokens": _tokens(rows),
            **engine_columns(counted),
        }
        await ctx.write(LOAD_REQUESTS, rows[stored:])
        await ctx.write(LOAD_WINDOWS, [window])
        self._requests += rows
        self._windows.append(window)

    def _body(self, prompt: SuitePrompt) -> Mapping[str, Any]:
        return self._ctx.client.request(prompt.prompt, self._spec.max_tokens, fixed=False)

    def _tell(
        self, rows: Sequence[Row], asked: int, concurrency: int, category: str | None, tok_s: float | None
    ) -> None:
        line = f"{condition_name(concurrency, category)}: {len(rows)}/{asked} answered"
        rate = "" if tok_s is None else f", {tok_s:.0f} tok/s"
        self._ctx.tell(Progress(self._percent(len(rows)), line + rate, tok_s))

    def _percent(self, here: int = 0) -> float:
        return 100 * (len(self._requests) + here) / self._total


def _tokens(rows: Sequence[Row]) -> int:
    return sum(row["completion_tokens"] for row in rows)


def _row(prompt: SuitePrompt, answer: Answered, concurrency: int, max_tokens: int, begun_s: float) -> Row:
    """One answer as a row of `load_requests`."""
    reply = answer.reply
    row = request_row(reply)
    gaps = reply.chunks - 1
    spread_s = (
        None
        if reply.first_token_s is None or reply.last_token_s is None or not gaps
        else (reply.last_token_s - reply.first_token_s) / gaps
    )
    return row | {
        "condition": condition_name(concurrency),
        "mode": MODE,
        "concurrency": concurrency,
        "output_tokens": max_tokens,
        "category": prompt.category,
        "prompt_id": prompt.prompt_id,
        "repeat": prompt.repeat,
        "sent_s": answer.sent_s - begun_s,
        "chunk_ms": None if spread_s is None else 1000 * spread_s,
    }


async def smoke(ctx: StepContext, spec: LoadStep, items: int) -> list[Finding | None]:
    """The first few prompts, one at a time, with short answers."""
    suite = await asyncio.to_thread(suite_of, spec)
    tried = suite.prompts[:items]
    cap = min(OUTPUT_TOKENS, spec.max_tokens)
    bodies = [ctx.client.request(each.prompt, cap, fixed=False) for each in tried]
    rows: list[Row] = []
    before = await ctx.counters()
    async with aclosing(closed_loop(ctx.client.stream, bodies, 1)) as answers:
        async for answer in answers:
            rows.append(_row(tried[answer.number], answer, 1, cap, 0.0) | {"condition": "smoke"})
            ctx.tell(Progress(100 * len(rows) / len(bodies), f"prompt {len(rows)}/{len(bodies)}"))
    counted = await ctx.counters_after(before, len(bodies))
    await ctx.write(LOAD_REQUESTS, rows)
    return smoke_findings(ctx.cell, rows, counted)
