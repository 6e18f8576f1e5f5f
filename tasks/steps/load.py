"""Load: every prompt of a suite, streamed at each concurrency, in a closed loop.

Units and formulas:
    ttft_ms   request sent to first token.
    tpot_ms   (last token - first token) / (tokens after the first chunk): time per output token, and so the inter-token
              latency of an answer, also where chunks hold several tokens. vLLM's `bench serve` divides by tokens - 1,
              which is too small a time where the first chunk held more than one, as with a draft or a canvas.
    chunk_ms  (last token - first token) / (chunks - 1): what a reader waits between two pieces of text.
    wall_s    request sent to last byte, the end-to-end latency.

Acceptance of the suite is counted by the engine before and after, that of a category is the sum of what the engine
says of each answer's own drafts (vLLM from 0.29 on). Where it says nothing, a category has one only if one request at a
time was in flight: then a window holds one category. With several categories are mixed, as real load is, no counter can
tell them apart, and it is left null.

A window is one category, one request at a time, else the whole suite. Its answers are decoded and stored when its clock
has stopped: one that is lost with its node is measured again, whole, since a part of it would be another load.

A prompt is asked once at each concurrency, and before that counted by the engine: one that it cut is seen. Asked again
it must not come faster than the first time, with fewer in flight: else the engine remembers, whatever it counts.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import groupby
from typing import Any

from configs.prompt_suites import SPEED_BENCH
from configs.steps.load import LoadStep, condition_name
from configs.steps.smoke import OUTPUT_TOKENS
from tasks.client import Ready, Reply, RequestFailed, StreamReply
from tasks.context import Progress, StepContext
from tasks.evals.run import DATASETS
from tasks.guards.finding import Finding, Judgement
from tasks.host import environments
from tasks.host.environment_spec import cache_folder
from tasks.prompt_suites.suite import PromptSuite, SuitePrompt, prompt_suite
from tasks.timing.answers import answers_of
from tasks.timing.load_verdict import judge_concurrency, smoke_findings
from tasks.timing.loops import closed_loop
from tasks.timing.timed import Timed, timed, with_failures
from tasks.timing.windows import request_row
from warehouse.statistics.windows import Span
from warehouse.steps.load import LOAD_REQUESTS, LOAD_WINDOWS, MODE

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
    """Measure every window that no earlier attempt on this machine has finished."""
    suite = await asyncio.to_thread(suite_of, spec)
    ctx.facts |= {"dataset_revision": suite.revision}
    windows = await ctx.resume(LOAD_WINDOWS, ("concurrency", "category", "attempt"))
    asked = {
        (row["concurrency"], each.prompt_id, row["attempt"])
        for row in windows
        for each in suite.prompts
        if row["category"] in (None, each.category)
    }
    requests = await ctx.resume(LOAD_REQUESTS, ("concurrency", "prompt_id", "attempt"), asked)
    run = _Run(ctx, spec, suite, [*filter(ctx.is_here, requests)], [*filter(ctx.is_here, windows)])
    for concurrency in spec.concurrencies:
        await run.measure(concurrency)
    return [each for concurrency in spec.concurrencies for each in run.judged(concurrency)]


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
        self._counted: dict[str, int] | None = {}
        """Tokens of prompts by id, as the engine counts them; None: it doesn't."""

    async def measure(self, concurrency: int) -> None:
        """The windows that are left at a concurrency: the whole suite, or one at a time category by category."""
        done = {row["category"] for row in _at(concurrency, self._windows)}
        left = [] if None in done else [each for each in self._suite.prompts if each.category not in done]
        if not left:
            return
        await self._count(left)
        beside = await self._warm_up(left, concurrency)
        if concurrency > 1:
            await self._window(left, concurrency, None, beside)
            return
        by_category = sorted(left, key=lambda each: each.category)
        for category, prompts in groupby(by_category, key=lambda each: each.category):
            await self._window([*prompts], concurrency, category, beside)
            beside = []

    def judged(self, concurrency: int) -> list[Judgement]:
        """What the guards say about a concurrency, all of whose windows are there."""
        asked = [self._ctx.stamp(row) for row in _at(concurrency, self._requests)]
        windows = _at(concurrency, self._windows)
        here = self._spec.concurrencies.index(concurrency)
        fewer = [number for number in self._spec.concurrencies[:here] if number < concurrency]
        earlier = [row for number in fewer for row in _at(number, self._requests)]
        return judge_concurrency(self._ctx.cell, self._ctx.planned.gpu, concurrency, windows, asked, earlier)

    async def _count(self, prompts: Sequence[SuitePrompt]) -> None:
        """Have the engine count prompts, once each: what it later says that it was sent must be as long."""
        for each in prompts:
            if self._counted is None or each.prompt_id in self._counted:
                continue
            try:
                self._counted[each.prompt_id] = await self._ctx.client.count_tokens(each.prompt)
            except RequestFailed as error:
                self._counted = None
                print(f"nobody can tell whether prompts are cut: {error}", flush=True)

    async def _warm_up(self, prompts: Sequence[SuitePrompt], concurrency: int) -> list[str]:
        """Untimed requests, with the window's own prompts: the prefix cache is off, and guards see if it isn't.

        Returns:
            A sentence for each that failed.
        """
        self._ctx.tell(Progress(self._percent(), f"{condition_name(concurrency)}: warm-up"))
        number = self._spec.warmup * concurrency
        requests = [self._ready(prompts[index % len(prompts)]) for index in range(number)]
        exchanges = await closed_loop(self._ctx.client.hear, requests, concurrency)
        answered = await answers_of(self._ctx.client, exchanges, may_all_fail=True)
        return [f"warm-up, {failure}" for failure in answered.failures]

    async def _window(
        self, prompts: Sequence[SuitePrompt], concurrency: int, category: str | None, beside: Sequence[str]
    ) -> None:
        name, most = condition_name(concurrency, category), self._spec.max_tokens
        requests = [self._ready(each) for each in prompts]
        load = await timed(self._ctx, requests, concurrency, lambda ended, _: self._tell(name, ended, len(prompts)))
        # long texts take seconds to look through: heartbeats go on meanwhile
        rows = await asyncio.to_thread(_rows, load, prompts, most, self._counted or {})
        window = {
            "condition": condition_name(concurrency),
            "mode": MODE,
            "concurrency": concurrency,
            "output_tokens": most,
            "category": category,
            **load.columns(),
        }
        window = with_failures(window, beside)
        await self._ctx.write(LOAD_REQUESTS, rows)
        await self._ctx.write(LOAD_WINDOWS, [window])  # behind its requests: it says that they are all there
        self._tell(name, len(rows), len(prompts), window["completion_tokens"] / window["wall_s"])
        self._requests += rows
        self._windows.append(window)

    def _ready(self, prompt: SuitePrompt) -> Ready:
        client = self._ctx.client
        return client.ready(client.request(prompt.prompt, self._spec.max_tokens, fixed=False), streams=True)

    def _tell(self, name: str, ended: int, asked: int, tok_s: float | None = None) -> None:
        rate = "" if tok_s is None else f", {tok_s:.0f} tok/s"
        self._ctx.tell(Progress(self._percent(ended), f"{name}: {ended}/{asked} answered{rate}", tok_s))

    def _percent(self, here: int = 0) -> float:
        before: int = sum(row["requests"] for row in self._windows)
        return 100 * (before + here) / self._total


def _rows(load: Timed, prompts: Sequence[SuitePrompt], max_tokens: int, counted: Mapping[str, int]) -> list[Row]:
    """The answers as rows of `load_requests`."""
    answered = load.answered
    return [
        _row(prompts[place], span, reply, load, max_tokens)
        | {"counted_prompt_tokens": counted.get(prompts[place].prompt_id)}
        for place, (span, reply) in zip(answered.places, answered.each, strict=True)
    ]


def _row(prompt: SuitePrompt, span: Span, reply: Reply | StreamReply, load: Timed, max_tokens: int) -> Row:
    return request_row(reply) | {
        "condition": condition_name(load.concurrency),
        "mode": MODE,
        "concurrency": load.concurrency,
        "output_tokens": max_tokens,
        "category": prompt.category,
        "prompt_id": prompt.prompt_id,
        "repeat": prompt.repeat,
        "sent_s": span.sent_s - load.begun_s,
        "chunk_ms": _chunk_ms(reply),
    }


def _chunk_ms(reply: Reply | StreamReply) -> float | None:
    if not isinstance(reply, StreamReply) or reply.first_token_s is None or reply.last_token_s is None:
        return None
    gaps = reply.chunks - 1
    return 1000 * (reply.last_token_s - reply.first_token_s) / gaps if gaps else None


async def smoke(ctx: StepContext, spec: LoadStep, items: int) -> list[Finding | None]:
    """The first few prompts, one at a time, with short answers."""
    suite = await asyncio.to_thread(suite_of, spec)
    tried = suite.prompts[:items]
    cap = min(OUTPUT_TOKENS, spec.max_tokens)
    # no timed request asks for token ids, so here it shows whether answers are as long as their usage says
    bodies = [ctx.client.request(each.prompt, cap, fixed=False, token_ids=True) for each in tried]
    load = await timed(
        ctx,
        [ctx.client.ready(body, streams=True) for body in bodies],
        1,
        lambda ended, _: ctx.tell(Progress(100 * ended / len(tried), f"prompt {ended}/{len(tried)}")),
    )
    load.answered.require_all()
    rows = [row | {"condition": "smoke"} for row in _rows(load, tried, cap, {})]
    await ctx.write(LOAD_REQUESTS, rows)
    return smoke_findings(ctx.cell, rows, load.counted)
