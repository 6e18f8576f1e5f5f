"""Which window of a condition is measured next, and how many there will be: a visit repeats until its pace is known."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import ceil
from typing import Any

from configs.steps.throughput import Condition, Repeats
from tasks.guards.steadiness import half_width
from tasks.steady import paces_of

Window = Mapping[str, Any]


def next_window(condition: Condition, windows: Sequence[Window]) -> tuple[str, int] | None:
    """Mode and repeat of the next window to measure; None: the condition is done.

    Fixed windows until the machine's pace is settled, or there are as many as allowed; then natural ones likewise, if
    any were asked for; then the stream.

    Args:
        condition: what is measured.
        windows: all windows of the visit so far.
    """
    for mode in condition.modes:
        there = _of(condition, mode, windows)
        if len(there) < windows_wanted(condition.repeats, there):
            taken = {row["repeat"] for row in there}
            return mode, next(repeat for repeat in range(len(there) + 1) if repeat not in taken)
    if condition.stream_requests and not _of(condition, "stream", windows):
        return "stream", 0
    return None


def percent_done(conditions: Sequence[Condition], windows: Sequence[Window]) -> float:
    """Windows measured over windows expected, in percent: what noisy repeats will take is guessed from those so far."""
    expected = done = 0
    for condition in conditions:
        repeats = [_of(condition, mode, windows) for mode in condition.modes]
        done += sum(map(len, repeats)) + len(_of(condition, "stream", windows))
        expected += sum(_expected(condition, each) for each in repeats) + bool(condition.stream_requests)
    return 100 * done / expected


def _of(condition: Condition, mode: str, windows: Sequence[Window]) -> list[Window]:
    return [row for row in windows if (row["condition"], row["mode"]) == (condition.name, mode)]


def windows_wanted(repeats: Repeats, there: Sequence[Window]) -> int:
    """How many windows of a mode there must be, as far as those that there are can tell."""
    if repeats.within is None or len(there) < repeats.min:
        return repeats.min
    if half_width(paces_of(there)) <= repeats.within:
        return len(there)
    return min(len(there) + 1, repeats.max)


def _expected(condition: Condition, there: Sequence[Window]) -> int:
    """The same, with a guess of all that is to come: a half-width shrinks with the root of n."""
    wanted, repeats = windows_wanted(condition.repeats, there), condition.repeats
    if repeats.within is None or wanted <= max(len(there), repeats.min):
        return wanted
    short = half_width(paces_of(there)) / repeats.within
    return max(wanted, min(repeats.max, ceil(len(there) * short**2)))
