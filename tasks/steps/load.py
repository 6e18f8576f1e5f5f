"""Load: every prompt of a suite, streamed: at each concurrency in a closed loop, at each rate in an open one.

Units and formulas:
    ttft_ms   request sent to first token.
    tpot_ms   (last token - first token) / (tokens after the first chunk): time per output token, and so the inter-token
              latency of an answer, also where chunks hold several tokens. vLLM's `bench serve` divides by tokens - 1,
              which is too small a time where the first chunk held more than one, as with a draft or a canvas.
    itl       inter-token latency, of each token after the first chunk: the gap before its chunk over the chunk's
              tokens. So its mean over tokens is TPOT and its percentiles can be held against AR's, whatever K. vLLM's
              `bench serve` takes a gap whole, which a chunk of five tokens has once: five times too long. To give it to
              the first of them and 0 to the others would be as true, and its median 0 wherever chunks hold two or more.
    chunk_ms  (last token - first token) / (chunks - 1): what a reader waits between two pieces of text.
    wall_s    request sent to last byte, the end-to-end latency.
    due_s     open loop: when the request was to be sent, by a schedule from a seed that is the same in every cell and
              visit. Latencies of the dataset run from there (`warehouse/loads/latencies.py`).

Acceptance of the suite is counted by the engine before and after, that of a category is the sum of what the engine
says of each answer's own drafts (vLLM from 0.29 on). Where it says nothing, a category has one only if one request at a
time was in flight: then a window holds one category. With several categories are mixed, as real load is, no counter can
tell them apart, and it is left null.

A window is one category, one request at a time, else the whole suite. Its answers are decoded and stored when its clock
has stopped. A load that is lost with its node is measured again, whole: part of a window would be another load, and
categories of two starts of the engine one figure of both. So a preemption may cost all windows of one load, c=1 most.

A prompt is asked once at each concurrency, and before that counted by the engine: one that it cut is seen. An engine
must not remember them, nor what they have in common, whatever it counts: a few like them are asked twice
(`asked_twice.py`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import groupby
from statistics import fmean
from typing import Any

from configs.prompt_suites import SPEED_BENCH
from configs.steps.load import LoadStep, Offered, with_category
from configs.steps.smoke import OUTPUT_TOKENS
from tasks.client import Ready, Reply, StreamReply
from tasks.context import Progress, StepContext
from tasks.evals.hub import DATASETS
from tasks.guards.finding import Finding, Judgement
from tasks.host import environments
from tasks.host.environment_spec import user_cache
from tasks.prompt_suites.suite import PromptSuite, SuitePrompt, prompt_suite
from tasks.prompts import Prompt, prompt_seed
from tasks.timing.asked_twice import ask_twice, counted_tokens, never_met, other_lengths
from tasks.timing.finished import finished
from tasks.timing.load_verdict import judge_load, smoke_findings
from tasks.timing.loops import constant_moments, poisson_moments
from tasks.timing.timed import Timed, meet_lengths, timed, timed_at, untimed, with_failures
from tasks.timing.windows import request_row
from warehouse.statistics.histogram import counted_gaps
from warehouse.statistics.windows import Span
from warehouse.steps.load import LOAD_REQUESTS, LOAD_WINDOWS

Row = dict[str, Any]

WINDOW = ("condition", "category", "attempt")
"""What identifies a window; requests of a mixed one have their own category."""


def suite_of(spec: LoadStep) -> PromptSuite:
    """The step's prompts, fetched once and kept in the user's cache.

    Raises:
        DatasetUnavailable: they can't be had, or have the wrong shape.
    """
    return prompt_suite(spec, user_cache() / DATASETS, partial(print, flush=True))


def make_ready(spec: LoadStep, tell: Callable[[str], None]) -> None:
    """Have the prompts before an engine is started.

    Raises:
        InstallError: what fetches them can't be installed.
        DatasetUnavailable: they can't be had, or have the wrong shape.
    """
    if spec.dataset == SPEED_BENCH:
        environments.ensure("lm-eval", tell=tell)
    prompt_suite(spec, user_cache() / DATASETS, tell)


async def measure(ctx: StepContext, spec: LoadStep) -> list[Judgement]:
    """Measure every load that no earlier attempt on this machine has finished."""
    suite = await asyncio.to_thread(suite_of, spec)
    ctx.facts |= {"dataset_revision": suite.revision}
    categories = {each.category for each in suite.prompts}

    def sent(window: Row) -> Iterator[tuple[Any, ...]]:
        for category in categories if window["category"] is None else [window["category"]]:
            yield window["condition"], category, window["attempt"]

    def is_whole(windows: Sequence[Row]) -> bool:
        there = {row["category"] for row in windows}
        return None in there or there >= categories

    whole = [(load.name, is_whole) for load in spec.loads]
    run = _Run(ctx, spec, suite, *await finished(ctx, LOAD_WINDOWS, LOAD_REQUESTS, WINDOW, whole, sent))
    for load in spec.loads:
        if not run.has(load):
            await run.measure(load)
    again = await ask_twice(ctx, [each.prompt for each in suite.prompts])
    return [each for load in spec.loads for each in run.judged(load, again)]


def schedule(load: Offered, number: int) -> list[float]:
    """Seconds from the start at which each of `number` requests is due; none in a closed loop.

    Poisson moments are stretched so that all are due in `number` over the rate, whatever was drawn: given their number,
    arrivals of a Poisson process are uniform in its time, however long that is.
    """
    if load.rate_s is None:
        return []
    if load.arrival == "constant":
        return constant_moments(load.rate_s, number)
    moments = poisson_moments(load.rate_s, number, prompt_seed(load.name))
    stretched = number / load.rate_s / moments[-1]
    return [moment * stretched for moment in moments]


def _of(load: Offered, rows: Sequence[Row]) -> list[Row]:
    return [row for row in rows if row["condition"] == load.name]


class _Run:
    """A load step that is being measured: what is there, and what is told of it."""

    def __init__(
        self, ctx: StepContext, spec: LoadStep, suite: PromptSuite, windows: list[Row], requests: list[Row]
    ) -> None:
        self._ctx, self._spec, self._suite = ctx, spec, suite
        self._windows, self._requests = windows, requests
        self._total = len(suite.prompts) * len(spec.loads)
        self._counted: dict[str, int] | None = None
        """Tokens of prompts by id, as the engine counts them; None: it wasn't asked yet."""

    def has(self, load: Offered) -> bool:
        """Whether the load is finished."""
        return bool(_of(load, self._windows))

    async def measure(self, load: Offered) -> None:
        """The windows of a load: the whole suite, or one at a time category by category."""
        asked = self._suite.prompts
        is_first = self._counted is None
        if self._counted is None:
            self._counted = await counted_tokens(self._ctx, ((each.prompt_id, each.prompt) for each in asked))
        beside = await self._warm_up(asked, load)
        if is_first and self._spec.warmup:  # of this start of the engine
            beside = [*beside, *await meet_lengths(self._ctx, self._other_lengths)]
        if load.concurrency != 1:
            await self._window(asked, load, None, beside)
            return
        by_category = sorted(asked, key=lambda each: each.category)
        for category, prompts in groupby(by_category, key=lambda each: each.category):
            await self._window([*prompts], load, category, beside)
            beside = []

    def judged(self, load: Offered, again: Sequence[Finding | None]) -> list[Judgement]:
        """What the guards say about a load, all of whose windows are there, and what is said of prompts asked again."""
        asked = [self._ctx.stamp(row) for row in _of(load, self._requests)]
        return judge_load(self._ctx.cell, self._ctx.planned.gpu, load, _of(load, self._windows), asked, again)

    async def _warm_up(self, prompts: Sequence[SuitePrompt], load: Offered) -> list[str]:
        """Untimed requests with prompts like the window's, as if they had never been met.

        Returns:
            A sentence for each that failed.
        """
        self._ctx.tell(Progress(self._percent(), f"{load.name}: warm-up"))
        number = self._spec.warmup * load.warmed_at_once
        requests = [self._ready(never_met(prompts[index % len(prompts)].prompt)) for index in range(number)]
        return (await untimed(self._ctx, "warm-up", requests, load.warmed_at_once)).failures

    async def _other_lengths(self, _: str, number: int) -> list[Ready]:
        client, met = self._ctx.client, other_lengths([each.prompt for each in self._suite.prompts], number)
        return [client.ready(client.request(each, 1, fixed=True)) for each in met]

    async def _window(
        self, prompts: Sequence[SuitePrompt], load: Offered, category: str | None, beside: Sequence[str]
    ) -> None:
        name, most = with_category(load.name, category), self._spec.max_tokens
        shape = {**_shape(load), "output_tokens": most}
        done = await self._sent([self._ready(each.prompt) for each in prompts], load, name)
        # long texts take seconds to look through: heartbeats go on meanwhile
        rows = [shape | row for row in await asyncio.to_thread(_rows, done, prompts, self._counted or {})]
        window = with_failures({**shape, "category": category, **done.columns()}, beside)
        await self._ctx.write(LOAD_REQUESTS, rows)
        await self._ctx.write(LOAD_WINDOWS, [window])  # behind its requests: it says that they are all there
        tok_s = None if load.rate_s else window["completion_tokens"] / window["wall_s"]
        self._tell(name, len(rows), len(prompts), tok_s)
        self._requests += rows
        self._windows.append(window)

    async def _sent(self, requests: Sequence[Ready], load: Offered, name: str) -> Timed:
        def tell(ended: int, _: object) -> None:
            self._tell(name, ended, len(requests))

        if load.concurrency is not None:
            return await timed(self._ctx, requests, load.concurrency, tell)
        return await timed_at(self._ctx, requests, schedule(load, len(requests)), tell)

    def _ready(self, prompt: Prompt) -> Ready:
        client = self._ctx.client
        return client.ready(client.request(prompt, self._spec.max_tokens, fixed=False), streams=True)

    def _tell(self, name: str, ended: int, asked: int, tok_s: float | None = None) -> None:
        rate = "" if tok_s is None else f", {tok_s:.0f} tok/s"
        self._ctx.tell(Progress(self._percent(ended), f"{name}: {ended}/{asked} answered{rate}", tok_s))

    def _percent(self, here: int = 0) -> float:
        before: int = sum(row["requests"] for row in self._windows)
        return 100 * (before + here) / self._total


def _shape(load: Offered) -> Row:
    """The load as columns of both tables."""
    return {
        "condition": load.name,
        "mode": load.mode,
        "concurrency": load.concurrency,
        "rate_s": load.rate_s,
        "arrival": load.arrival,
    }


def _rows(load: Timed, prompts: Sequence[SuitePrompt], counted: Mapping[str, int]) -> list[Row]:
    """The answers as rows of `load_requests`, but for the load's own columns."""
    answered = load.answered
    return [
        _row(prompts[place], span, reply, load.begun_s)
        | {
            "due_s": load.moments_s[place] if load.moments_s else None,
            "counted_prompt_tokens": counted.get(prompts[place].prompt_id),
        }
        for place, (span, reply) in zip(answered.places, answered.each, strict=True)
    ]


def _row(prompt: SuitePrompt, span: Span, reply: Reply | StreamReply, begun_s: float) -> Row:
    return request_row(reply) | {
        "category": prompt.category,
        "prompt_id": prompt.prompt_id,
        "repeat": prompt.repeat,
        "sent_s": span.sent_s - begun_s,
        "chunk_ms": _chunk_ms(reply),
        "itl_histogram": counted_gaps(reply.gaps) if isinstance(reply, StreamReply) else None,
    }


def _chunk_ms(reply: Reply | StreamReply) -> float | None:
    """Of the same gaps: their mean."""
    if not isinstance(reply, StreamReply) or not reply.gaps:
        return None
    return 1000 * fmean(gap_s for gap_s, _ in reply.gaps)


async def smoke(ctx: StepContext, spec: LoadStep, items: int) -> list[Finding | None]:
    """The first few prompts, one at a time, with short answers."""
    suite = await asyncio.to_thread(suite_of, spec)
    tried = suite.prompts[:items]
    cap = min(OUTPUT_TOKENS, spec.max_tokens)
    bodies = [ctx.client.request(each.prompt, cap, fixed=False) for each in tried]
    load = await timed(
        ctx,
        [ctx.client.ready(body, streams=True) for body in bodies],
        1,
        lambda ended, _: ctx.tell(Progress(100 * ended / len(tried), f"prompt {ended}/{len(tried)}")),
    )
    load.answered.require_all()
    shape = _shape(Offered(concurrency=1)) | {"condition": "smoke", "output_tokens": cap}
    rows = [shape | row for row in _rows(load, tried, {})]
    await ctx.write(LOAD_REQUESTS, rows)
    return smoke_findings(ctx.cell, rows, load.counted)
