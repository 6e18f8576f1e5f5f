"""When requests are sent, and the steady state of what was sent.

Closed loop: so many are in flight. Open loop: they are sent at moments that no answer changes.

In an open loop a client that falls behind hides the engine's delays, because it sends late what would have waited
(coordinated omission; Tene, "How NOT to Measure Latency", 2013). So each request keeps the moment for which it was
scheduled, from which the dataset measures its latencies (`warehouse/dataset/loads.py`).

The steady state is the time in which every slot was busy. A whole window with several requests in flight is too slow,
because slots empty at its end: 7 to 12 % with two rounds of requests (simulated). Requests that differ more in time
lose more, so one technique loses more than another.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import accumulate
from typing import Any, NamedTuple

from configs.steps.throughput import STEADY_ROUNDS
from tasks.client import Heard, Ready, RequestFailed, Unanswered
from tasks.client.replies import PACK_FROM_BYTES
from warehouse.ledger.formulas import Span, steady_bounds, steps_of, tokens_and_seconds, tokens_within

Send = Callable[[Ready], Awaitable[Heard]]

OnAnswer = Callable[[int, "Exchange"], None]
"""Gets how many have ended, and which was the last. It runs inside the clock: it may count, and no more."""


class Exchange(NamedTuple):
    """One request of a load: its answer or why there is none, and when it was due, on the event loop's clock."""

    ready: Ready
    heard: Heard | None
    failure: str | None
    scheduled_s: float | None  # None in a closed loop: a request is due when a slot is free


def constant_moments(rate_per_s: float, number: int) -> list[float]:
    """Seconds from the start at which requests are due, evenly: 0, 1/rate, 2/rate, ..."""
    return [index / rate_per_s for index in range(number)]


def poisson_moments(rate_per_s: float, number: int, seed: int) -> list[float]:
    """The same as a Poisson process: gaps are exponential with mean 1/rate, the same for the same seed."""
    gaps = random.Random(seed)
    return list(accumulate(gaps.expovariate(rate_per_s) for _ in range(number)))


async def closed_loop(
    send: Send, requests: Sequence[Ready], concurrency: int, on_answer: OnAnswer | None = None
) -> list[Exchange]:
    """Keep `concurrency` requests in flight until all are sent; each slot sends its next as soon as it is answered.

    Raises Unanswered: the engine is gone or stands still; what else is in flight is cancelled.
    """
    waiting = iter(enumerate(requests))

    async def slot() -> None:
        for place, ready in waiting:
            await load.exchange(place, ready)

    with Exchanges(send, on_answer) as load:
        return await load.all_of(slot() for _ in range(min(concurrency, len(requests))))


async def open_loop(
    send: Send, requests: Sequence[Ready], moments_s: Sequence[float], on_answer: OnAnswer | None = None
) -> list[Exchange]:
    """Send each request at its moment, in seconds from now, however many are in flight. Raises as `closed_loop`."""
    loop = asyncio.get_running_loop()
    start_s = loop.time()

    async def at(place: int, ready: Ready, moment_s: float) -> None:
        await asyncio.sleep(start_s + moment_s - loop.time())
        await load.exchange(place, ready, start_s + moment_s)

    due = enumerate(zip(requests, moments_s, strict=True))
    with Exchanges(send, on_answer) as load:
        return await load.all_of(at(place, ready, moment_s) for place, (ready, moment_s) in due)


class Exchanges:
    """The exchanges of a load, by place. While it is entered, large answers are packed; what isn't stays as it is.

    Streams of a load are hundreds of megabytes as they came. Nothing is decoded: that would take Python's lock from the
    clock. Packing by zlib doesn't hold it, so one thread of its own packs what has ended, an answer at a time.
    """

    def __init__(self, send: Send, on_answer: OnAnswer | None = None) -> None:
        self.exchanges: dict[int, Exchange] = {}
        self._send, self._on_answer = send, on_answer
        self._thread = ThreadPoolExecutor(1, "packing")
        self._packing: list[Future[None]] = []

    def __enter__(self) -> Exchanges:
        return self

    def __exit__(self, *_: object) -> None:
        self._thread.shutdown(wait=False, cancel_futures=True)
        for each in self._packing:
            if each.done() and not each.cancelled():
                each.result()  # packing can't fail; if it did, it is told

    async def exchange(self, place: int, ready: Ready, scheduled_s: float | None = None) -> None:
        """One request; that it failed is kept. Raises Unanswered: all others will fail, too."""
        try:
            exchange = Exchange(ready, await self._send(ready), None, scheduled_s)
        except Unanswered:
            raise
        except RequestFailed as error:
            exchange = Exchange(ready, None, str(error), scheduled_s)
        self.exchanges[place] = exchange
        if exchange.heard is not None and len(exchange.heard.data) >= PACK_FROM_BYTES:
            self._packing.append(self._thread.submit(self._pack, place, exchange, exchange.heard))
        if self._on_answer is not None:
            self._on_answer(len(self.exchanges), exchange)

    async def all_of(self, coroutines: Iterable[Coroutine[Any, Any, None]]) -> list[Exchange]:
        """All exchanges in their order, when these have ended; with the first error the others are cancelled."""
        tasks = [asyncio.ensure_future(each) for each in coroutines]
        try:
            await asyncio.gather(*tasks)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        return [self.exchanges[place] for place in range(len(self.exchanges))]

    def _pack(self, place: int, exchange: Exchange, heard: Heard) -> None:
        self.exchanges[place] = exchange._replace(heard=heard.packed())


class Steady(NamedTuple):
    """Seconds in which all slots were busy, and the output tokens of that time."""

    seconds: float
    tokens: float


def steady_state(spans: Sequence[Span], concurrency: int) -> Steady | None:
    """What was produced between the first answer and the last sending; None: one at a time, or too few requests.

    Before the first answer the requests are in step, and after the last sending slots empty. In between all slots are
    busy. A request's tokens are spread evenly over its time, its prefill included.
    """
    if concurrency == 1 or len(spans) < STEADY_ROUNDS * concurrency:
        return None
    begin, end = steady_bounds(spans)
    if end <= begin:
        return None
    return Steady(end - begin, sum(tokens for tokens, _ in tokens_within(spans, begin, end)))


def delivered_share(spans: Sequence[Span], concurrency: int) -> float:
    """Mean requests in flight over those asked for, 0 to 1, while there were requests left to fill all slots.

    The integral of those in flight from the first sending to the last, or to the first answer if that is later, over
    that time and `concurrency`. Below 1 the client was slow to send the next request (Little's law).
    """
    begin = min(span.sent_s for span in spans)
    end = max(max(span.sent_s for span in spans), min(span.ended_s for span in spans))
    inside_s = sum(max(0.0, min(span.ended_s, end) - span.sent_s) for span in spans)
    return inside_s / (min(concurrency, len(spans)) * (end - begin)) if end > begin else 1.0


def paces_of(windows: Sequence[Mapping[str, Any]]) -> list[float]:
    """Decoding steps per second of each window, of all its sequences: the machine's pace, whatever drafts are worth.

    Each repeat sends other prompts, and a draft's tok/s differ between them by what was accepted. Steps are those of
    `steps_of`; block diffusion counts its own. Without either count a token is a step.
    """
    paces = []
    for (tokens, seconds), row in zip(tokens_and_seconds(windows), windows, strict=True):
        completion, steps = row["completion_tokens"], row.get("engine_denoising_steps")
        if completion and not steps:
            steps = None if (found := steps_of(row)) is None else max(1, found)
        paces.append(tokens / seconds * (float(steps / completion) if completion and steps else 1.0))
    return paces


def steps_of_answer(request: Mapping[str, Any]) -> int | None:
    """Decoding steps of an answer, its prefill's among them; None: the engine didn't say what it drafted for it."""
    drafts = request.get("engine_draft_steps")
    return None if drafts is None else steps_of({**request, "engine_drafts": drafts, "requests": 1})
