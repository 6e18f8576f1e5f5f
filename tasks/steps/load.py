"""Load: every prompt of a suite, streamed: at each concurrency in a closed loop, at each rate in an open one.

Units and formulas:
    ttft_ms:  request sent to first token.
    tpot_ms:  (last token - first token) / (tokens after the first chunk), the time per output token. So it is also the
              inter-token latency of an answer, even where chunks hold several tokens. The `bench serve` of vLLM divides
              by tokens - 1. That is too small a time where the first chunk held more than one, as with a draft or a
              canvas.
    itl:      inter-token latency, of each token after the first chunk: the gap before its chunk over the chunk's
              tokens. So its mean over tokens is TPOT, and its percentiles can be compared with AR's, whatever K. The
              `bench serve` of vLLM takes a gap whole, which a chunk of five tokens has once: five times too long.
    chunk_ms: (last token - first token) / (chunks - 1): what a reader waits between two pieces of text.
    wall_s:   request sent to last byte, the end-to-end latency.
    due_s:    open loop: when the request was to be sent, by a schedule from a seed that is the same in every cell and
              start. Latencies of the dataset run from there (`warehouse/dataset/loads.py`).

Acceptance of the suite is counted by the engine before and after. That of a category is the sum of what the engine
says of each answer's own drafts (vLLM from 0.29 on). Where it says nothing, a category has one only if one request at a
time was in flight: then a window holds one category. With several in flight, categories are mixed, as real load is. No
counter can tell them apart, and acceptance is left null.

A window is one category, one request at a time, else the whole suite. Its answers are decoded and stored when its clock
has stopped. A load that is lost with its node is measured again, whole: part of a window would be another load, and a
figure over its categories would mix two engine starts. So a preemption may cost all windows of one load, c=1 most.

A prompt is asked once at each concurrency, and before that counted by the engine: one that it cut is seen. An engine
must not remember them, nor what they have in common, whatever it counts: a few like them are asked twice
(`asked_twice.py`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from math import fsum
from statistics import median
from typing import Any

from configs.cell import Cell, Gpu
from configs.prompt_suites import SPEED_BENCH
from configs.steps.load import LoadStep, Offered, with_category
from configs.steps.smoke import OUTPUT_TOKENS
from configs.steps.throughput import STEADY_ROUNDS
from tasks.client import Ready
from tasks.context import Progress, StepContext
from tasks.evals.hub import DATASETS
from tasks.guards.steadiness import BEHIND_SHARE, client_behind
from tasks.host import environments
from tasks.host.environment_spec import user_cache
from tasks.prompt_suites.suite import PromptSuite, SuitePrompt, prompt_suite
from tasks.prompts import prompt_seed
from tasks.timing.asked_twice import CountedPrompts, ask_twice, never_met, other_lengths
from tasks.timing.conditions import TimedCondition, Window, measure_conditions, tried, window_of
from tasks.timing.loops import constant_moments, poisson_moments, steps_of_answer
from tasks.timing.timed import Asked, Row
from tasks.timing.verdict import Paces, Work, verdict
from warehouse.ledger.formulas import windows_of
from warehouse.ledger.timed_tables import LOAD
from warehouse.ledger.verdicts import Finding, Judgement, Reason

WINDOW = ("condition", "category", "attempt")  # what identifies a window; requests of a mixed one have their category
WHOLE = "whole"  # names the window of a load that has all categories


def suite_of(spec: LoadStep) -> PromptSuite:
    """The step's prompts, fetched once and kept in the user's cache. Raises as `prompt_suite` does."""
    return prompt_suite(spec, user_cache() / DATASETS, partial(print, flush=True))


def make_ready(spec: LoadStep, tell: Callable[[str], None]) -> None:
    """Have the prompts before an engine is started. Raises as `prompt_suite`, and InstallError of what fetches them."""
    if spec.dataset == SPEED_BENCH:
        environments.ensure("lm-eval", tell=tell)
    prompt_suite(spec, user_cache() / DATASETS, tell)


async def measure(ctx: StepContext, spec: LoadStep) -> list[Judgement]:
    """Measure every load that no earlier attempt on this machine has finished."""
    suite = await asyncio.to_thread(suite_of, spec)
    ctx.facts |= {"dataset_revision": suite.revision}

    def sent(window: Row) -> Iterator[tuple[Any, ...]]:
        for category in suite.categories if window["category"] is None else [window["category"]]:
            yield window["condition"], category, window["attempt"]

    counted = CountedPrompts((each.prompt_id, each.prompt) for each in suite.prompts)
    conditions = [_Load(ctx, spec, suite, load, counted) for load in spec.loads]
    measured = zip(spec.loads, await measure_conditions(ctx, LOAD, conditions, WINDOW, sent), strict=True)
    again = await ask_twice(ctx, [each.prompt for each in suite.prompts])
    return [said for load, rows in measured for said in judge_load(ctx.cell, ctx.planned.gpu, load, *rows, again)]


def schedule(load: Offered, number: int) -> list[float]:
    """Seconds from the start at which each of `number` requests is due; none in a closed loop.

    Poisson moments are stretched so that all are due in `number` over the rate, whatever was drawn. That is sound:
    given their number, arrivals of a Poisson process are uniform in its time, however long that is.
    """
    if load.rate_s is None:
        return []
    if load.arrival == "constant":
        return constant_moments(load.rate_s, number)
    moments = poisson_moments(load.rate_s, number, prompt_seed(load.name))
    stretched = number / load.rate_s / moments[-1]
    return [moment * stretched for moment in moments]


class _Load(TimedCondition):
    """The whole suite under one load, or one request at a time category by category."""

    def __init__(
        self, ctx: StepContext, spec: LoadStep, suite: PromptSuite, load: Offered, counted: CountedPrompts
    ) -> None:
        super().__init__(ctx, load.name, load.warmed_at_once, spec.warmup)
        self._max_tokens, self._suite, self._load, self._counted = spec.max_tokens, suite, load, counted
        self._answered = 0

    def next_window(self, windows: Sequence[Row]) -> str | None:
        """A category, or `WHOLE`."""
        there = {row["category"] for row in windows}
        if self._load.concurrency != 1 or None in there:
            return None if there else WHOLE
        return next((each for each in self._suite.categories if each not in there), None)

    async def warm_up(self) -> list[str]:
        """Before the first load of an engine start it counts the prompts, and meets their lengths."""
        self._is_first = await self._counted.count(self.ctx)
        return await super().warm_up()

    async def warming(self, number: int) -> list[Ready]:
        """With prompts like the windows', as if they had never been met."""
        prompts, client = self._suite.prompts, self.ctx.client
        places = range(number * self.at_once, (number + 1) * self.at_once)
        like = [never_met(prompts[place % len(prompts)].prompt) for place in places]
        return [client.ready(client.request(each, self._max_tokens, fixed=False), streams=True) for each in like]

    async def first_tokens(self, window: str, number: int) -> list[Ready]:
        """With prompts like the shortest and like the longest."""
        met = other_lengths([each.prompt for each in self._suite.prompts], number) if self._is_first else []
        return [self.ctx.client.ready(self.ctx.client.request(each, 1, fixed=True)) for each in met]

    async def measure(self, wanted: str) -> Window:
        category = None if wanted == WHOLE else wanted
        prompts = [each for each in self._suite.prompts if category in (None, each.category)]
        name = with_category(self.name, category)
        asked = _asked(self.ctx, prompts, self._max_tokens, self._counted.of)
        done, expected = self.step_size()  # before the clock, inside which nobody may count windows

        def tell(ended: int, _: object) -> None:
            line = f"{name}: {ended}/{len(asked)} answered"
            self.ctx.tell(Progress(100 * (done + ended) / expected, line))

        same = {**_shape(self._load), "output_tokens": self._max_tokens}
        window = await window_of(self.ctx, asked, same, tell, schedule(self._load, len(asked)))
        self._answered = len(window.requests)
        return window._replace(row={**window.row, "category": category})

    def size(self, windows: Sequence[Row]) -> tuple[int, int]:
        """In requests."""
        return sum(row["requests"] for row in windows), len(self._suite.prompts)

    def line(self, last: Row) -> tuple[str, float | None]:
        said = f"{with_category(self.name, last['category'])}: {self._answered}/{last['requests']} answered"
        if self._load.rate_s is not None:
            return said, None
        tok_s = last["completion_tokens"] / last["wall_s"]
        return f"{said}, {tok_s:.0f} tok/s", tok_s


def _asked(
    ctx: StepContext, prompts: Sequence[SuitePrompt], max_tokens: int, counted: Callable[[str], int | None]
) -> list[Asked]:
    """Streamed requests of prompts, encoded; answers end by themselves."""
    return [
        Asked(
            ctx.client.ready(ctx.client.request(each.prompt, max_tokens, fixed=False), streams=True),
            {
                "category": each.category,
                "prompt_id": each.prompt_id,
                "repeat": each.repeat,
                "counted_prompt_tokens": counted(each.prompt_id),
            },
        )
        for each in prompts
    ]


def _shape(load: Offered) -> Row:
    """The load as columns of both tables."""
    return {
        "condition": load.name,
        "mode": load.mode,
        "concurrency": load.concurrency,
        "rate_s": load.rate_s,
        "arrival": load.arrival,
    }


def judge_load(
    served: Cell,
    gpu: Gpu,
    load: Offered,
    windows: Sequence[Row],
    requests: Sequence[Row],
    again: Sequence[Finding | None] = (),
) -> list[Judgement]:
    """What the guards say about the whole suite under a load, and about each of its categories.

    The engine counts all requests together, so what its counters show applies to every category. So does an unsteady
    machine. Texts are a category's own. `again` are the findings about an engine that is asked prompts again.
    """
    work = Work(served, gpu, windows, requests, load.concurrency)
    few, paces = _without_steady_state(load, requests), _paces(served, load, requests)
    shared = [*work.done(), work.too_fast(), work.slow_alone(), few, *work.late(), *again]
    said = []
    for category in [None, *sorted({row["category"] for row in requests})]:
        asked = work._replace(requests=[row for row in requests if category in (None, row["category"])])
        own = [row for row in windows if category in (None, row["category"])]
        timed = asked._replace(windows=own) if own else work  # else all categories are mixed
        found = [*shared, *asked.answers(), asked.lumps(), _behind(timed.requests)]
        name = with_category(load.name, category)
        said.append(verdict(name, load.mode, found, timed.windows, paces=paces, clocks=_together(timed)))
    return said


def _without_steady_state(load: Offered, requests: Sequence[Row]) -> Finding | None:
    """Of a user's file nobody knows before it is read how many prompts a limit per category leaves."""
    concurrency = load.concurrency or 1
    if concurrency == 1 or len(requests) >= STEADY_ROUNDS * concurrency:
        return None
    few = f"{len(requests)} requests have no steady state of {concurrency} at a time: ask {STEADY_ROUNDS} for each"
    return Finding(Reason.UNSTEADY, "suspect", few)


def _paces(served: Cell, load: Offered, requests: Sequence[Row]) -> Paces | None:
    """Repeats of the whole suite have the same share of every category, so their paces must agree.

    Those of a category are few prompts, which may differ by what they are about. At a rate repeats make what is sent.

    Repeats are different prompts, on which drafts are worth more or less, so a drafting engine's pace is its decoding
    steps: by what it says of each answer's own drafts (vLLM from 0.29 on). Its counters can't tell. Prompts are dealt
    to the repeats in turn, so the repeats interleave, and a window holds all of them. Of some answers the engine says
    nothing: with an older vLLM, or with block diffusion, for which 0.32.0 refuses `--per-request-spec-decode-metrics`.
    Then nobody can tell a slow repeat from one whose drafts were worth less. So it is not judged, and the row says so
    (`warehouse.dataset.steps.load`).
    """
    steps = [*map(steps_of_answer, requests)]
    told = None not in steps
    if load.concurrency is None or _without_steady_state(load, requests) or not (told or served.technique.is_baseline):
        return None
    made = steps if told else [row["completion_tokens"] for row in requests]
    windows = windows_of([{**row, "completion_tokens": each} for row, each in zip(requests, made, strict=True)])
    rates = [row["completion_tokens"] / row["wall_s"] for row in windows if row["condition"] == load.name]
    return Paces(rates, None, "decoding steps/s" if told else "tokens/s")


def _behind(sent: Sequence[Row]) -> Finding | None:
    """Of an open loop; in a closed one a request is due when it is sent."""
    due = [row for row in sent if row.get("due_s") is not None]
    return client_behind([1000 * (row["sent_s"] - row["due_s"]) for row in due], _first_ms(due))


def _first_ms(sent: Sequence[Row]) -> list[float]:
    return [row["ttft_ms"] for row in sent if row["ttft_ms"] is not None]


def _together(work: Work) -> list[Row]:
    """All windows behind a figure as one clock, since a category's window may be short.

    It is the clock of a first token where the client was late often enough to be in its 95th percentile. Otherwise it
    is that of a mean request: among hundreds of first tokens one late moment of a long load is nothing.
    """
    windows, seconds = work.windows, fsum(row["wall_s"] for row in work.windows)
    if not seconds:
        return []
    late = sum(row.get("client_late_moments") or 0 for row in windows)
    first = _first_ms(work.requests) if late > BEHIND_SHARE * len(work.requests) else []
    together = {
        "mode": "stream",
        "concurrency": work.in_flight,
        "requests": sum(row["requests"] for row in windows),
        "wall_s": seconds,
        "prefill_s": median(first) / 1000 if first else None,
        "client_late_ms": max(row["client_late_ms"] for row in windows),
        "client_late_share": fsum((row["client_late_share"] or 0.0) * row["wall_s"] for row in windows) / seconds,
    }
    return [together]


async def smoke(ctx: StepContext, spec: LoadStep, items: int) -> list[Finding | None]:
    """The first few prompts, one at a time, with short answers."""
    suite = await asyncio.to_thread(suite_of, spec)
    cap = min(OUTPUT_TOKENS, spec.max_tokens)
    same = _shape(Offered(concurrency=1)) | {"condition": "smoke", "output_tokens": cap}
    rows, counted = await tried(ctx, LOAD, _asked(ctx, suite.prompts[:items], cap, lambda _: None), same, "prompt")
    work = Work(ctx.cell, ctx.planned.gpu, [], rows, 1)
    return [*work.smoke(counted), work.lumps()]
