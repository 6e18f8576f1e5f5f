"""A load with a clock on the wire: its requests are encoded before, its answers are decoded after the clock stopped."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from math import ceil
from typing import Any, NamedTuple

from configs.steps.throughput import WARM_UP_LENGTHS
from tasks.client import Ready
from tasks.context import StepContext
from tasks.meters import Counters
from tasks.power import Looks, Sampler, card_columns
from tasks.steady import delivered_share
from tasks.timing.answers import Answered, answers_of
from tasks.timing.client_watch import ClientWatch, Lateness
from tasks.timing.loops import Exchange, OnAnswer, closed_loop, open_loop
from warehouse.statistics.windows import Span


class Timed(NamedTuple):
    """What a loop brought, what engine and cards told over it, and how late the client's own timer woke."""

    asked: int
    concurrency: int | None
    """None: an open loop, in which nobody asked for any."""
    answered: Answered
    counted: Counters
    lateness: Lateness
    looks: Looks
    moments_s: Sequence[float] = ()
    """When each request was due, in seconds from `started_s`; none: a closed loop."""
    started_s: float | None = None
    """When the schedule of an open loop began, on the event loop's clock."""

    @property
    def spans(self) -> list[Span]:
        """Each answer's time on the event loop's clock, and its tokens."""
        return [span for span, _ in self.answered.each]

    @property
    def begun_s(self) -> float:
        """When it began, on that clock: its schedule, or the sending of its first request that was answered."""
        return min(span.sent_s for span in self.spans) if self.started_s is None else self.started_s

    @property
    def hits_told(self) -> Counters:
        """What the engine counted, with the prefix cache's hits by usage where that says more: either gives it away."""
        told = sum(reply.cached_tokens for _, reply in self.answered.each)
        return self.counted._replace(prefix_hits=told) if told > (self.counted.prefix_hits or 0) else self.counted

    def columns(self) -> dict[str, Any]:
        """What every table of windows has of it; `wall_s` runs from the first sending to the last byte."""
        replies, spans = [reply for _, reply in self.answered.each], self.spans
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
            **self.hits_told.columns(),
            **card_columns(self.looks),
        }


async def timed(
    ctx: StepContext, requests: Sequence[Ready], concurrency: int, on_answer: OnAnswer | None = None
) -> Timed:
    """Send requests in a closed loop, over connections that are open before it starts.

    Args:
        ctx: has the client.
        requests: encoded.
        concurrency: requests in flight.
        on_answer: is called inside the clock, as by `closed_loop`.

    Raises:
        RequestFailed: as for `answers_of`, or the engine is gone.
    """

    async def load() -> list[Exchange]:
        return await closed_loop(ctx.client.hear, requests, concurrency, on_answer)

    return await _timed(ctx, load, concurrency, concurrency, ())


async def timed_at(
    ctx: StepContext, requests: Sequence[Ready], moments_s: Sequence[float], on_answer: OnAnswer | None = None
) -> Timed:
    """The same in an open loop: each request is sent at its moment, in seconds from the start.

    As many connections are open before as are due within its first second; whoever finds none idle opens one, which
    is part of its own time.
    """

    async def load() -> list[Exchange]:
        return await open_loop(ctx.client.hear, requests, moments_s, on_answer)

    rate_s = len(moments_s) / moments_s[-1] if moments_s[-1] else 1.0
    return await _timed(ctx, load, min(len(requests), ceil(rate_s)), None, moments_s)


async def _timed(
    ctx: StepContext,
    load: Callable[[], Awaitable[list[Exchange]]],
    connections: int,
    concurrency: int | None,
    moments_s: Sequence[float],
) -> Timed:
    before = await ctx.counters()
    await ctx.client.connect(connections)
    async with Sampler(ctx.cards) as sampler, ClientWatch() as watch:
        exchanges = await load()
    counted = await ctx.counters_after(before, len(exchanges))
    due_s = exchanges[0].scheduled_s
    started_s = None if due_s is None else due_s - moments_s[0]
    answered = await answers_of(ctx.client, exchanges)
    return Timed(len(exchanges), concurrency, answered, counted, watch.lateness, sampler.looks, moments_s, started_s)


async def untimed(ctx: StepContext, what: str, requests: Sequence[Ready], concurrency: int) -> Answered:
    """Send requests beside the timed ones, and wait until the engine has counted those that it answered.

    What it counts late must not fall into the window that follows; what failed is told with that window.

    Args:
        ctx: has the client.
        what: they are, in the sentences of those that fail.
        requests: encoded.
        concurrency: requests in flight.

    Raises:
        RequestFailed: the engine is gone.
    """
    before = await ctx.counters()
    exchanges = await closed_loop(ctx.client.hear, requests, concurrency)
    answered = await answers_of(ctx.client, exchanges, may_all_fail=True)
    await ctx.counters_after(before, len(answered.each))
    return answered._replace(failures=[f"{what}, {failure}" for failure in answered.failures])


async def meet_lengths(ctx: StepContext, made: Callable[[str, int], Awaitable[Sequence[Ready]]]) -> list[str]:
    """Part of a warm-up: prompts for their lengths' sake; returns a sentence for each that failed.

    Args:
        ctx: has the client.
        made: requests for no more than the first token, by the name of their window and their number.
    """
    requests = await made("warm-up-lengths", WARM_UP_LENGTHS)
    return (await untimed(ctx, "warm-up", requests, 1)).failures


def with_failures(window: dict[str, Any], beside: Sequence[str]) -> dict[str, Any]:
    """A window's row, to which what failed beside it belongs: its warm-up, its probes. No engine fails only untimed."""
    first = window["first_failure"] or next(iter(beside), None)
    return window | {"failed": window["failed"] + len(beside), "first_failure": first}
