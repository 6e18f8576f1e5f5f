"""A window is measured until its client kept up and the engine answered; what the lost tries were told is not lost."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from tasks.guards.steadiness import is_client_limited, is_starved
from tasks.timing.answers import AllFailed
from tasks.timing.timed import with_failures

T = TypeVar("T")

Row = dict[str, Any]

MOST_TRIES = 3
"""How often a window is measured whose client was starved or slow; if it still is, the last is kept, and suspect."""


async def measured(
    once: Callable[[int], Awaitable[tuple[Row, T]]], starved: Callable[[Row], bool] = is_starved
) -> tuple[Row, T]:
    """Measure a window; returns what the try that is kept brought.

    One whose client was starved, or too slow to keep the load up, is measured again: the last try is kept. Not one in
    which requests failed: that is the engine's, and must be seen. One in which all failed has nothing to show: what
    they got is told with the next try.

    Args:
        once: measures it, the n-th time from 1: the window's row, and whatever goes with it.
        starved: whether a client that waited is in the row's figures.

    Raises:
        AllFailed: in every try.
    """
    lost: list[str] = []
    for tries in range(1, MOST_TRIES + 1):
        try:
            window, beside = await once(tries)
        except AllFailed as error:
            lost += error.failures
            if tries == MOST_TRIES:
                raise AllFailed(lost) from error
            continue
        if window["failed"] or not (starved(window) or is_client_limited(window)):
            break
    return with_failures({**window, "tries": tries}, lost), beside
