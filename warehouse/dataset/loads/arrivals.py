"""Whether an engine followed a schedule: what arrives also leaves, or more and more requests are in flight."""

from __future__ import annotations

from collections.abc import Sequence
from math import fsum, sqrt
from typing import NamedTuple

from warehouse.dataset.consolidate.rows import Row
from warehouse.dataset.statistics.bootstrap import quantile
from warehouse.ledger.verdicts import Reason

FILLED_SHARE = 0.25
"""Share of a schedule in which an engine fills. What is in flight afterwards stays as it is, if the engine follows: it
takes as long as the longest answer does."""

GROWN_SHARE = 0.1
"""Share of what arrived since then that must have been left over: an engine that answers nine of ten follows, or all
but follows, and so short a schedule doesn't tell which."""

GROWN_DEVIATIONS = 3.0
"""And more than chance leaves over, in standard deviations. What is in flight of independent arrivals is Poisson, with
a variance of its mean L (M/G/inf: Cox and Miller, "The Theory of Stochastic Processes", 1965), so the difference
between two moments has 2 L."""


ENDS_SHARE = 0.05
"""Share of the ends on either side that is no part of the rate: one long answer at the end would set it. What lies
between is as many as arrived in as long a time where the engine follows, and its capacity where it doesn't."""

SWIFTER = 0.25
"""Quantile of the first ones' seconds per token: where a queue grows at once, most of them have waited already."""


class Followed(NamedTuple):
    """One schedule on one machine; what is in flight is told from `FILLED_SHARE` of it to its last request."""

    offered_s: float
    """Requests per second that were asked for."""
    arrived_s: float | None
    """Requests per second that were due, between the first and the last `ENDS_SHARE` of them: chance makes it another
    rate than the one asked for, and what was answered is of this one. None: all were due at once."""
    answered_s: float | None
    """Requests per second that ended, between the first and the last `ENDS_SHARE` of all ends; None: it was filling."""
    in_flight: float
    """Mean number of requests in flight."""
    before: int
    """In flight at its begin."""
    after: int
    """In flight at its end."""
    arrived: int
    """Requests that were due in it."""

    @property
    def is_overloaded(self) -> bool | None:
        """Whether more and more were in flight; None: the engine was still filling, and nobody can tell."""
        if self.answered_s is None:
            return None
        grown = self.after - self.before
        chance = GROWN_DEVIATIONS * sqrt(2 * max(1, self.before))
        return grown > max(GROWN_SHARE * self.arrived, chance)

    @property
    def sentence(self) -> str:
        """The same in words, with the figures."""
        return (
            f"{Reason.OVERLOADED}: {self.before} requests in flight after a quarter of the schedule, {self.after} at "
            f"its end: {self.answered_s or 0.0:.3g} a second were answered of {self.offered_s:g} offered, so latencies "
            "are those of a queue that grows"
        )


def followed(rows: Sequence[Row]) -> Followed | None:
    """What became of a schedule; None: a closed loop, or too short a schedule to tell.

    Args:
        rows: of `load_requests`, of one load in one attempt.
    """
    spans = [(row["due_s"], row["sent_s"] + row["wall_s"]) for row in rows if row["due_s"] is not None]
    end = max((due for due, _ in spans), default=0.0)
    begin = FILLED_SHARE * end
    answered_s = _middle_rate([ended for _, ended in spans])
    if end <= begin or answered_s is None:
        return None
    is_filled = _longest_s(rows, begin) <= begin
    inside_s = fsum(max(0.0, min(ended, end) - max(due, begin)) for due, ended in spans)
    return Followed(
        offered_s=rows[0]["rate_s"],
        arrived_s=_middle_rate([due for due, _ in spans]),
        answered_s=answered_s if is_filled else None,
        in_flight=inside_s / (end - begin),
        before=sum(due <= begin < ended for due, ended in spans),
        after=sum(due <= end < ended for due, ended in spans),
        arrived=sum(begin < due <= end for due, _ in spans),
    )


def _middle_rate(moments: Sequence[float]) -> float | None:
    """Moments per second between the first and the last `ENDS_SHARE` of them."""
    ordered = sorted(moments)
    left_out = int(ENDS_SHARE * len(ordered))
    first, last = left_out, len(ordered) - 1 - left_out
    seconds = ordered[last] - ordered[first] if ordered else 0.0
    return (last - first) / seconds if seconds > 0 else None


def _longest_s(rows: Sequence[Row], begin: float) -> float:
    """What the longest answer takes at the pace of the swifter of the first ones, before a queue could grow."""
    sent = [row for row in rows if row["due_s"] is not None and row["completion_tokens"]]
    paces = sorted(row["wall_s"] / row["completion_tokens"] for row in sent if row["due_s"] <= begin)
    longest = max((row["completion_tokens"] for row in sent), default=0)
    return float(longest * quantile(paces, SWIFTER)) if paces else 0.0
