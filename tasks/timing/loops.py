"""When requests are sent: closed loop, so many in flight, or open loop, at moments that no answer changes.

In an open loop a client that falls behind hides the engine's delays: it sends late what would have waited (coordinated
omission; Tene, "How NOT to Measure Latency", 2013). So each request keeps the moment for which it was scheduled, from
which the dataset tells its latencies (`warehouse/dataset/loads.py`).
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Coroutine, Iterable, MutableMapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import accumulate
from types import TracebackType
from typing import Any, Generic, NamedTuple, Protocol, Self, TypeVar

from tasks.client import Heard, Ready, RequestFailed, Unanswered

T = TypeVar("T")

Send = Callable[[Ready], Awaitable[Heard]]

OnAnswer = Callable[[int, "Exchange"], None]
"""Is told how many have ended, and which was the last. It runs inside the clock: it may count, and no more."""


class Exchange(NamedTuple):
    """One request of a load: its answer or why there is none, and when it was due, on the event loop's clock."""

    ready: Ready
    heard: Heard | None
    failure: str | None
    scheduled_s: float | None
    """None in a closed loop: a request is due when a slot is free."""

    @property
    def is_large(self) -> bool:
        """Whether packing it makes room."""
        return self.heard is not None and self.heard.is_large

    def packed(self) -> Exchange:
        """With its answer in less room."""
        return self if self.heard is None else self._replace(heard=self.heard.packed())


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

    Raises:
        Unanswered: the engine is gone or stands still; what else is in flight is cancelled.
    """
    waiting = iter(enumerate(requests))
    exchanges: dict[int, Exchange] = {}

    async def slot() -> None:
        for index, ready in waiting:
            exchange = exchanges[index] = await _exchange(send, ready, None)
            if exchange.is_large:
                packing.pack(index)
            if on_answer is not None:
                on_answer(len(exchanges), exchange)

    with Packing(exchanges) as packing:
        await _together(slot() for _ in range(min(concurrency, len(requests))))
    return [exchanges[index] for index in range(len(requests))]


async def open_loop(
    send: Send, requests: Sequence[Ready], moments_s: Sequence[float], on_answer: OnAnswer | None = None
) -> list[Exchange]:
    """Send each request at its moment, in seconds from now, however many are in flight.

    Raises:
        Unanswered: the engine is gone or stands still; what else is in flight is cancelled.
    """
    loop = asyncio.get_running_loop()
    start_s = loop.time()
    exchanges: dict[int, Exchange] = {}

    async def at(index: int, ready: Ready, moment_s: float) -> None:
        await asyncio.sleep(start_s + moment_s - loop.time())
        exchange = exchanges[index] = await _exchange(send, ready, start_s + moment_s)
        if exchange.is_large:
            packing.pack(index)
        if on_answer is not None:
            on_answer(len(exchanges), exchange)

    due = enumerate(zip(requests, moments_s, strict=True))
    with Packing(exchanges) as packing:
        await _together(at(index, ready, moment_s) for index, (ready, moment_s) in due)
    return [exchanges[index] for index in range(len(requests))]


async def _exchange(send: Send, ready: Ready, scheduled_s: float | None) -> Exchange:
    """One request; that it failed is kept, unless it says that all others will."""
    try:
        return Exchange(ready, await send(ready), None, scheduled_s)
    except Unanswered:
        raise
    except RequestFailed as error:
        return Exchange(ready, None, str(error), scheduled_s)


async def _together(coroutines: Iterable[Coroutine[Any, Any, T]]) -> list[T]:
    """All results, in order; with the first error the others are cancelled."""
    tasks = [asyncio.ensure_future(each) for each in coroutines]
    try:
        return await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


class Packs(Protocol):
    """What can be kept in less room."""

    def packed(self) -> Self:
        """The same, smaller."""
        ...


P = TypeVar("P", bound=Packs)


class Packing(Generic[P]):
    """Packs entries of a mapping while it is entered; what it didn't come to stays as it is.

    Streams of a load are hundreds of megabytes as they came. Nothing is decoded: that would take Python's lock from the
    clock. zlib doesn't hold it, so one thread of its own packs what has ended, an answer at a time.
    """

    def __init__(self, kept: MutableMapping[int, P]) -> None:
        self._kept = kept
        self._thread = ThreadPoolExecutor(1, "packing")
        self._asked: list[Future[None]] = []

    def __enter__(self) -> Packing[P]:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._thread.shutdown(wait=False, cancel_futures=True)
        for each in self._asked:
            if each.done() and not each.cancelled():
                each.result()  # packing can't fail; if it did, it is told

    def pack(self, place: int) -> None:
        """Have one entry packed soon. Nobody else may replace it any more."""
        self._asked.append(self._thread.submit(self._pack, place))

    def _pack(self, place: int) -> None:
        self._kept[place] = self._kept[place].packed()
