"""What a load's exchanges brought, decoded after its clock has stopped: answers, and what failed."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import NamedTuple

from tasks.client import Client, Heard, Reply, RequestFailed, StreamReply, reply_of, stream_reply_of
from tasks.timing.loops import Exchange


class Answered(NamedTuple):
    """Answers with their places in the load, from 0, and a sentence for each request that failed."""

    places: list[int]
    each: list[tuple[Heard, Reply | StreamReply]]
    failures: list[str]

    def require_all(self) -> None:
        """Accept no failure.

        Raises:
            RequestFailed: the first of them.
        """
        if self.failures:
            raise RequestFailed(self.failures[0])


async def answers_of(client: Client, exchanges: Sequence[Exchange]) -> Answered:
    """Decode the answers.

    Raises:
        RequestFailed: nothing could be used, or something failed and the engine is gone: there is nothing to judge.
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
            answered.each.append((exchange.heard, reply))
    if not answered.each:
        raise RequestFailed(f"all {len(exchanges)} requests failed; {answered.failures[0]}")
    if answered.failures:
        await client.text("/health")  # an engine that died fails the attempt, with the cause from its log
    return answered
