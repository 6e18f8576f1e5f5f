"""From looks at the cards to the columns of a timed window: pure functions.

energy_j  sum over cards of (counter at the end - counter at the begin); of a card without such a counter the
integral of its power by trapezoids, sum of (p[i] + p[i+1]) / 2 x (t[i+1] - t[i]).
power_w   energy_j over the seconds between the first and the last look: the mean of all cards together.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from math import fsum
from statistics import median
from typing import Any

from tasks.power.nvml import Reading
from warehouse.tables import CARD_COLUMNS

Looks = Sequence[Sequence[Reading]]
"""In order of time, each with a reading per card; none: nobody looked."""

SHORTEST_S = 0.5
"""A window that is shorter has no energy: counters move in steps of up to a tenth of a second, and power is a mean over
a second, so that its ends would decide."""

LEAST_SAMPLES = 10
"""So many readings of power make an integral, where there is no counter."""

REASONS = {
    0x4: "sw_power_cap",
    0x8: "hw_slowdown",
    0x10: "sync_boost",
    0x20: "sw_thermal_slowdown",
    0x40: "hw_thermal_slowdown",
    0x80: "hw_power_brake",
}
"""Bits of nvmlClocksThrottleReasons that slow a working card; idling and clocks that somebody set are none."""

COUNTER, SAMPLES = "counter", "samples"


def card_columns(looks: Looks) -> dict[str, Any]:
    """The columns of `CARD_COLUMNS`, all of them null without a look.

    Clocks are of the looks in between: before its first request and behind its last one a card may idle.

    Args:
        looks: of one window.
    """
    columns: dict[str, Any] = dict.fromkeys(column.name for column in CARD_COLUMNS)
    if not looks:
        return columns
    inside = [reading for look in looks[1:-1] for reading in look]
    everything = [reading for look in looks for reading in look]
    clocks = [reading.clock_mhz for reading in inside if reading.clock_mhz is not None]
    energy, source = _energy(looks)
    return columns | {
        "energy_j": energy,
        "energy_from": source,
        "power_w": None if energy is None else energy / _seconds(looks),
        "gpu_memory_peak_bytes": _most(reading.used_bytes for reading in everything),
        "clock_mhz_min": min(clocks, default=None),
        "clock_mhz_median": median(clocks) if clocks else None,
        "temperature_c_max": _most(reading.temperature_c for reading in everything),
        "throttle_reasons": _reasons([reading.reasons for look in looks[1:] for reading in look]),
    }


def _seconds(looks: Looks) -> float:
    return looks[-1][0].at_s - looks[0][0].at_s


def _energy(looks: Looks) -> tuple[float | None, str | None]:
    """Joules of all cards, and where they come from; None: of some card nobody knows."""
    if _seconds(looks) < SHORTEST_S:
        return None, None
    series = [*zip(*looks, strict=True)]
    counted = [_counted(each) for each in series]
    found = [_integral(each) if joules is None else joules for each, joules in zip(series, counted, strict=True)]
    known = [joules for joules in found if joules is not None]
    if len(known) < len(found):
        return None, None
    return fsum(known), SAMPLES if None in counted else COUNTER


def _counted(readings: Sequence[Reading]) -> float | None:
    """A counter that stood still tells nothing: a card that is on takes power."""
    first, last = readings[0].energy_mj, readings[-1].energy_mj
    return None if first is None or last is None or last <= first else (last - first) / 1000


def _integral(readings: Sequence[Reading]) -> float | None:
    known = [(reading.at_s, reading.power_mw / 1000) for reading in readings if reading.power_mw is not None]
    if len(known) < max(LEAST_SAMPLES, len(readings)):
        return None
    return fsum((watt + then) / 2 * (after_s - at_s) for (at_s, watt), (after_s, then) in pairwise(known)) or None


def _most(values: Any) -> int | None:
    return max((value for value in values if value is not None), default=None)


def _reasons(said: Sequence[int | None]) -> list[str] | None:
    known = [bits for bits in said if bits is not None]
    return [name for bit, name in REASONS.items() if any(bits & bit for bits in known)] if known else None
