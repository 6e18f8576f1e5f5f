"""Whether the engine works on requests of which nothing can be seen: its counter of tokens rises, or it stands still.

An answer that is not streamed comes whole, after half an hour perhaps, so nothing on its own connection tells a long
answer from a lost one. Its progress is the engine's, and is looked at only once a request has been quiet for long: what
is timed in seconds is never looked at.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from tasks import meters
from tasks.client.failures import RequestFailed
from tasks.wire.patience import Patience
from tasks.wire.transport import Transport

LOOK_AFTER_SHARE = 0.2
"""Share of the quiet time that is waited before the first look: 60 s of 300."""

LOOKS = 20
"""Looks within a quiet time: every 15 s of 300."""


async def keep_looking(transport: Transport, metrics: Callable[[], Awaitable[str]], patience: Patience) -> None:
    """Tell the transport of the engine's progress while its requests are quiet; does not return.

    An engine without a counter is given the benefit of the doubt: there, the bound on the whole request ends it.

    Args:
        transport: with the requests in flight.
        metrics: gives the engine's `/metrics` page.
        patience: whose quiet time the requests have.
    """
    if patience.quiet_s is None:
        return
    seen: float | None = None
    while True:
        await asyncio.sleep(patience.quiet_s / LOOKS)
        if transport.quietest_s() < LOOK_AFTER_SHARE * patience.quiet_s:
            continue
        try:
            tokens = meters.parse(await metrics()).generation_tokens
        except RequestFailed:
            continue  # no page, no progress: the requests' own patience goes on running out
        if tokens is None or tokens != seen:
            transport.still_working()
        seen = tokens
