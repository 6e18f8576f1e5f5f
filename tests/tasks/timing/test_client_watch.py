"""The client watches itself: how late its own timer wakes."""

from __future__ import annotations

import asyncio

import pytest

from tasks.timing.timed import TICK_S, ClientWatch, Lateness
from tests.tasks.virtual_time import Clock, run


def watched(nap_s: float) -> Lateness:
    async def window(clock: Clock) -> Lateness:
        async with ClientWatch() as watch:
            await asyncio.sleep(0.505)
            clock.nap(nap_s)
            await asyncio.sleep(0.5)
        return watch.lateness

    return run(window)


def test_a_timer_that_wakes_in_time_is_not_late() -> None:
    assert watched(0.0).late_ms == pytest.approx(0, abs=0.01)


def test_a_nap_of_the_client_shows_in_full_but_for_a_tick() -> None:
    assert 400 - 1000 * TICK_S <= watched(0.4).late_ms <= 400


def test_a_client_that_sleeps_until_the_window_ends_is_late_too() -> None:
    async def window(clock: Clock) -> Lateness:
        async with ClientWatch() as watch:
            await asyncio.sleep(0.5)
            clock.nap(0.4)
        return watch.lateness

    assert run(window).late_ms == pytest.approx(400 - 1000 * TICK_S)


def test_the_real_kernel_counts_the_share_without_a_processor() -> None:
    async def window() -> Lateness:
        async with ClientWatch() as watch:
            await asyncio.sleep(2 * TICK_S)
        return watch.lateness

    share = asyncio.run(window()).share
    assert share is None or 0 <= share <= 1
