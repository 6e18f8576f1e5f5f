"""A closed loop: so many requests in flight, each answer followed by the next request at once."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Coroutine, Mapping, Sequence
from typing import Any, NamedTuple

from tasks.client import StreamReply


class Answered(NamedTuple):
    """One answer: of which request, and when that was sent, by the loop's clock in seconds."""

    number: int
    sent_s: float
    reply: StreamReply


async def closed_loop(
    send: Callable[[Mapping[str, Any]], Coroutine[Any, Any, StreamReply]],
    bodies: Sequence[Mapping[str, Any]],
    concurrency: int,
) -> AsyncGenerator[Answered, None]:
    """Answers in the order in which they end; requests are sent in the order given, at most `concurrency` at a time.

    One that fails ends the loop with its error, and so does whoever stops listening: what is in flight is cancelled.
    """
    slots, clock = asyncio.Semaphore(concurrency), asyncio.get_running_loop().time

    async def one(number: int, body: Mapping[str, Any]) -> Answered:
        async with slots:
            sent_s = clock()
            return Answered(number, sent_s, await send(body))

    waiting = [asyncio.ensure_future(one(number, body)) for number, body in enumerate(bodies)]
    try:
        for ended in asyncio.as_completed(waiting):
            yield await ended
    finally:
        for task in waiting:
            task.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)
