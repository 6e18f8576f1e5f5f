"""A load with a clock on the wire: its requests are encoded before, its answers are decoded after the clock stopped.

Meanwhile the client watches its own timer: one without a processor times its machine, no engine.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from math import ceil
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple

from tasks.client import Client, Ready, Reply, RequestFailed, StreamReply, reply_of, stream_reply_of
from tasks.context import StepContext
from tasks.guards.steadiness import CALM_LATE_MS
from tasks.guards.text import text_columns
from tasks.meters import Counters, Looks, Sampler, card_columns
from tasks.prompts import prompt_seed
from tasks.timing.loops import Exchange, OnAnswer, closed_loop, delivered_share, open_loop
from warehouse.ledger.formulas import Span, counted_gaps


class AllFailed(RequestFailed):
    """No request of a load was answered."""

    def __init__(self, failures: Sequence[str]) -> None:
        """`failures`: a sentence for each."""
        super().__init__(f"all {len(failures)} requests failed; {failures[0]}")
        self.failures = list(failures)


class Answered(NamedTuple):
    """Answers with their places in the load, from 0, and a sentence for each request that failed."""

    places: list[int]
    each: list[tuple[Span, Reply | StreamReply]]  # its time on the loop's clock, and what was said; no bytes
    failures: list[str]

    def require_all(self) -> None:
        """Raises RequestFailed with the first failure, if there is one."""
        if self.failures:
            raise RequestFailed(self.failures[0])


async def answers_of(client: Client, exchanges: Sequence[Exchange], *, may_all_fail: bool = False) -> Answered:
    """Decode the answers; where something failed, ask the engine whether it lives.

    They may all fail where nothing is read off them, as of a warm-up. Failures are then reported with the window that
    follows. Raises AllFailed: there is nothing to judge. RequestFailed: something failed, and the engine is gone.
    """
    answered = Answered([], [], [])
    for place, exchange in enumerate(exchanges):
        await asyncio.sleep(0)  # long streams take seconds to decode: heartbeats get their turn
        try:
            if exchange.heard is None:
                raise RequestFailed(exchange.failure or "no answer")
            reply = stream_reply_of(exchange.heard) if exchange.ready.streams else reply_of(exchange.heard)
        except RequestFailed as error:
            answered.failures.append(f"request {place}: {error}")
        else:
            answered.places.append(place)
            span = Span(exchange.heard.arrivals.sent_s, exchange.heard.arrivals.ended_s, reply.completion_tokens)
            answered.each.append((span, reply))
    if not answered.each and not may_all_fail:
        raise AllFailed(answered.failures)
    if answered.failures:
        await client.text("/health")  # an engine that died fails the attempt, with the cause from its log
    return answered


TICK_S = 0.01
"""How often the timer wakes: a tenth of what starves a window of a tenth of a second. It costs about 0.3 % of a
processor."""


class Lateness(NamedTuple):
    """How late the client's timer woke, and how long this thread waited for a processor."""

    late_ms: float  # the largest
    share: float | None  # of the time, 0 to 1, without a processor; None: the kernel keeps no such count
    moments: int = 0  # how often the timer woke later than a calm machine's does


class Timed(NamedTuple):
    """What a loop brought, what engine and cards reported over it, and how late the client's own timer woke."""

    asked: int
    concurrency: int | None  # None: an open loop, which is given none
    answered: Answered
    counted: Counters
    lateness: Lateness
    looks: Looks
    moments_s: Sequence[float] = ()  # when each request was due, in seconds from `started_s`; none: a closed loop
    started_s: float | None = None  # when the schedule of an open loop began, on the event loop's clock

    @property
    def spans(self) -> list[Span]:
        """Each answer's time on the event loop's clock, and its tokens."""
        return [span for span, _ in self.answered.each]

    @property
    def begun_s(self) -> float:
        """When it began, on that clock: its schedule, or the sending of its first request that was answered."""
        return min(span.sent_s for span in self.spans) if self.started_s is None else self.started_s

    def columns(self) -> dict[str, Any]:
        """What every table of windows has of it; `wall_s` runs from the first sending to the last byte."""
        replies, spans, counted = [reply for _, reply in self.answered.each], self.spans, self.counted
        cached_tokens = sum(reply.cached_tokens for reply in replies)
        if cached_tokens > (counted.prefix_hits or 0):  # by usage or by the counter: either gives the cache away
            counted = counted._replace(prefix_hits=cached_tokens)
        return {
            "requests": self.asked,
            "failed": len(self.answered.failures),
            "first_failure": next(iter(self.answered.failures), None),
            "wall_s": max(span.ended_s for span in spans) - min(span.sent_s for span in spans),
            "delivered_share": None if self.concurrency is None else delivered_share(spans, self.concurrency),
            "client_late_ms": self.lateness.late_ms,
            "client_late_share": self.lateness.share,
            "client_late_moments": self.lateness.moments,
            "prompt_tokens": sum(reply.prompt_tokens for reply in replies),
            "completion_tokens": sum(reply.completion_tokens for reply in replies),
            **counted.columns(),
            **card_columns(self.looks),
        }


async def timed(
    ctx: StepContext,
    requests: Sequence[Ready],
    concurrency: int | None,
    on_answer: OnAnswer | None = None,
    moments_s: Sequence[float] = (),
) -> Timed:
    """Send requests in a closed loop, or each at its moment, over connections that are open before it starts.

    In an open loop (`concurrency` is None, `moments_s` are seconds from its start) as many are open before as requests
    are due within its first second. A request that finds none idle opens one, which is part of its own time. Raises
    RequestFailed as `answers_of` does.
    """
    before = await ctx.counters()
    if concurrency is None:
        rate_s = len(moments_s) / moments_s[-1] if moments_s[-1] else 1.0
        await ctx.client.connect(min(len(requests), ceil(rate_s)))
        load = open_loop(ctx.client.hear, requests, moments_s, on_answer)
    else:
        await ctx.client.connect(concurrency)
        load = closed_loop(ctx.client.hear, requests, concurrency, on_answer)
    async with Sampler(ctx.cards) as sampler, ClientWatch() as watch:
        exchanges = await load
    counted = await ctx.counters_after(before, len(exchanges))
    due_s = exchanges[0].scheduled_s
    started_s = None if due_s is None else due_s - moments_s[0]
    answered = await answers_of(ctx.client, exchanges)
    return Timed(len(exchanges), concurrency, answered, counted, watch.lateness, sampler.looks, moments_s, started_s)


async def untimed(ctx: StepContext, what: str, requests: Sequence[Ready], concurrency: int) -> Answered:
    """Send requests that are not timed, and wait until the engine has counted those that it answered.

    What it counts late must not fall into the window that follows. Failures are reported with that window, and say
    `what` the requests are. Raises RequestFailed: the engine is gone.
    """
    before = await ctx.counters()
    exchanges = await closed_loop(ctx.client.hear, requests, concurrency)
    answered = await answers_of(ctx.client, exchanges, may_all_fail=True)
    await ctx.counters_after(before, len(answered.each))
    return answered._replace(failures=[f"{what}, {failure}" for failure in answered.failures])


class ClientWatch:
    """Watches the event loop while it is entered; `lateness` is known afterwards.

    What the loop itself does meanwhile counts as lateness, too: an answer waits for it just as long.
    """

    def __init__(self) -> None:
        self.lateness = Lateness(0.0, None)
        self._late_s, self._moments = 0.0, 0
        self._due_s = 0.0

    async def __aenter__(self) -> ClientWatch:
        self._loop = asyncio.get_running_loop()
        self._begun_s, self._waited_s = self._loop.time(), _waited_for_processor_s()
        self._due_s = self._begun_s + TICK_S
        self._ticking = asyncio.create_task(self._tick())
        return self

    async def __aexit__(self, *_: object) -> None:
        self._ticking.cancel()
        now_s, waited_s = self._loop.time(), _waited_for_processor_s()
        self._woke(now_s - self._due_s)  # the last tick may be overdue
        share = None
        if waited_s is not None and self._waited_s is not None and now_s > self._begun_s:
            share = (waited_s - self._waited_s) / (now_s - self._begun_s)
        self.lateness = Lateness(1000 * self._late_s, share, self._moments)

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(self._due_s - self._loop.time())
            now_s = self._loop.time()
            self._woke(now_s - self._due_s)
            self._due_s = now_s + TICK_S

    def _woke(self, late_s: float) -> None:
        self._late_s = max(self._late_s, late_s)
        self._moments += 1000 * late_s > CALM_LATE_MS


def _waited_for_processor_s() -> float | None:
    """Seconds that this thread was ready to run and had to wait, since it began; None: the kernel doesn't count it.

    Source: Documentation/scheduler/sched-stats.rst of Linux, /proc/<pid>/schedstat, second field, nanoseconds.
    """
    try:
        return int(Path("/proc/thread-self/schedstat").read_text(encoding="ascii").split()[1]) / 1e9
    except FileNotFoundError:
        return None


Row = dict[str, Any]


class Asked(NamedTuple):
    """One request, encoded, and the columns of its row that are known before it is sent."""

    ready: Ready
    columns: Row


def ready_of(asked: Sequence[Asked]) -> list[Ready]:
    """The requests without their rows."""
    return [each.ready for each in asked]


class OwnPrompts(NamedTuple):
    """Prompts of a length, none of which is ever sent twice, each to be answered with the same number of tokens."""

    kind: str  # what they are made of
    context_tokens: int
    output_tokens: int

    async def ask(
        self,
        ctx: StepContext,
        names: Sequence[str],
        number: int,
        *,
        cut: int | None = None,
        fixed: bool = True,
        streams: bool = False,
        **more: Any,
    ) -> list[Asked]:
        """So many requests, counted by the engine and encoded, before any clock starts.

        `names`: what their seed is made of; condition and window last, which name the requests. `cut`: tokens of an
        answer that is wanted no further; None: all. `more`: what else is asked of `Client.request`.
        """
        asked = []
        for index in range(number):
            seed = prompt_seed(*names, index)
            prompt = await ctx.prompt(self.kind, seed, self.context_tokens, self.output_tokens)
            body = ctx.client.request(prompt, cut or self.output_tokens, fixed=fixed, **more)
            named = {"request_id": "/".join([*names[-2:], str(index)]), "prompt_chars": len(prompt.text)}
            asked.append(Asked(ctx.client.ready(body, streams=streams), named))
        return asked


def request_rows(load: Timed, asked: Sequence[Asked], same: Row) -> list[Row]:
    """The answers of a load as rows of requests; `same` are columns that all of them share."""
    answered, rows = load.answered, []
    for place, (span, reply) in zip(answered.places, answered.each, strict=True):
        row = same | _answer(reply) | asked[place].columns | {"sent_s": span.sent_s - load.begun_s}
        rows.append(row | ({"due_s": load.moments_s[place]} if load.moments_s else {}))
    return rows


def _answer(reply: Reply | StreamReply) -> Row:
    """One answer as columns; a streamed one has its times, too."""
    text = reply.text if isinstance(reply, StreamReply) else reply.reasoning + reply.body
    row: Row = {
        "prompt_tokens": reply.prompt_tokens,
        "completion_tokens": reply.completion_tokens,
        "wall_s": reply.wall_s,
        "finish_reason": reply.finish_reason,
        "chars": len(text),
        "text": text,
        **{f"engine_{name}": value for name, value in reply.engine._asdict().items()},
    }
    if isinstance(reply, Reply):
        ids = reply.token_ids
        told = {"mean_logprob": reply.mean_logprob, "token_id_count": None if ids is None else len(ids)}
        return row | text_columns(text, ids) | told
    gaps = reply.gaps
    return row | text_columns(text, None) | {
        "token_id_count": reply.token_id_count,
        "ttft_ms": _ms(reply.first_token_s),
        "tpot_ms": _ms(reply.tpot_s),
        "chunk_ms": _ms(fmean(gap_s for gap_s, _ in gaps) if gaps else None),
        "itl_histogram": counted_gaps(gaps),
        "chunks": reply.chunks,
        "first_chunk_tokens": reply.first_chunk_tokens,
        "largest_chunk_tokens": reply.largest_chunk_tokens,
    }  # fmt: skip


def _ms(seconds: float | None) -> float | None:
    return None if seconds is None else 1000 * seconds
