"""The one way in which moments, lengths of time and dollars of rented time are written."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import overload

MINUTE_S = 60
HOUR_S = 3600


def _since_boot_s() -> float:
    """Seconds since this machine was booted, those in which it slept included: a rented machine costs meanwhile."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


BOOTED_AT_S = time.time() - _since_boot_s()  # when that was, by the wall clock as it is when a process begins


def iso_of(epoch_s: float) -> str:
    """A moment in seconds since 1970, as ISO 8601 with milliseconds, UTC."""
    return datetime.fromtimestamp(epoch_s, UTC).isoformat(timespec="milliseconds")


class Clock:
    """This machine's clock. A flow has one that can be stopped; the simulated night of `bench/`, one that jumps.

    Set by the wall clock once, when the process begins, it goes on with the time since boot: no moment of a process
    goes backwards, no cost becomes negative, and no start changes its place in its machine's order.
    """

    def now_s(self) -> float:
        """Seconds since 1970."""
        return BOOTED_AT_S + _since_boot_s()

    def now_iso(self) -> str:
        """Now, as ISO 8601 with milliseconds, UTC."""
        return iso_of(self.now_s())


SYSTEM = Clock()  # stamps records where no other clock is given


def moment_s(iso: str) -> float:
    """An ISO 8601 moment as seconds since 1970."""
    return datetime.fromisoformat(iso).timestamp()


def seconds_between(start_iso: str, end_iso: str) -> float:
    """Seconds between two ISO 8601 moments, which one machine must have written: clocks differ."""
    return (datetime.fromisoformat(end_iso) - datetime.fromisoformat(start_iso)).total_seconds()


def duration(seconds: float) -> str:
    """A length of time in at most six characters (below 100 h): `42s`, `7m05s`, `3h20m`; `-` below half a second."""
    rounded = round(seconds)
    if rounded <= 0:
        return "-"
    if rounded < MINUTE_S:
        return f"{rounded}s"
    if rounded < HOUR_S:
        return f"{rounded // MINUTE_S}m{rounded % MINUTE_S:02d}s"
    return f"{rounded // HOUR_S}h{rounded % HOUR_S // MINUTE_S:02d}m"


@overload
def usd_of(price_usd_h: float, seconds: float) -> float: ...
@overload
def usd_of(price_usd_h: float | None, seconds: float) -> float | None: ...
def usd_of(price_usd_h: float | None, seconds: float) -> float | None:
    """Dollars for this many seconds; None without a price."""
    return None if price_usd_h is None else price_usd_h * seconds / HOUR_S


def dollars(usd: float | None) -> str:
    """An amount, or `?` where no price is known."""
    return "?" if usd is None else f"${usd:.2f}"
