"""What a load's exchanges brought, decoded after its clock has stopped: answers, and what failed."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import NamedTuple

from tasks.client import Client, Reply, RequestFailed, StreamReply, reply_of, stream_reply_of
from tasks.timing.loops import Exchange
from warehouse.statistics.windows import Span


class AllFailed(RequestFailed):
    """No request of a load was answered."""

    def __init__(self, failures: Sequence[str]) -> None:
        """`failures`: a sentence for each."""
        super().__init__(f"all {len(failures)} requests failed; {failures[0]}")
        self.failures = list(failures)


class Answered(NamedTuple):
    """Answers with their places in the load, from 0, and a sentence for each request that failed."""

    places: list[int]
    each: list[tuple[Span, Reply | StreamReply]]
    """Its time on the event loop's clock with its tokens, and what was said. The bytes are let go."""
    failures: list[str]

    def require_all(self) -> None:
        """Accept no failure.

        Raises:
            RequestFailed: the first of them.
        """
        if self.failures:
            raise RequestFailed(self.failures[0])


async def answers_of(client: Client, exchanges: Sequence[Exchange], *, may_all_fail: bool = False) -> Answered:
    """Decode the answers.

    Args:
        client: asks the engine whether it lives, where something failed.
        exchanges: what the load brought.
        may_all_fail: nothing is read off them, as of a warm-up: what failed is told with the window that follows.

    Raises:
        AllFailed: nothing could be used: there is nothing to judge.
        RequestFailed: something failed, and the engine is gone.
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
            span = Span(exchange.heard.sent_s, exchange.heard.ended_s, reply.completion_tokens)
            answered.each.append((span, reply))
    if not answered.each and not may_all_fail:
        raise AllFailed(answered.failures)
    if answered.failures:
        await client.text("/health")  # an engine that died fails the attempt, with the cause from its log
    return answered
