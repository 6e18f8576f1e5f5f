"""Whether an engine followed a schedule: what arrives also leaves, or more and more requests are in flight."""

from __future__ import annotations

from collections.abc import Sequence
from math import fsum, sqrt
from typing import NamedTuple

from warehouse.consolidate.rows import Row
from warehouse.verdicts import Reason

FILLED_SHARE = 0.25
"""Share of a schedule in which an engine fills. What is in flight afterwards stays as it is, if the engine follows."""

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


class Followed(NamedTuple):
    """One schedule on one machine; what is in flight is told from `FILLED_SHARE` of it to its last request."""

    offered_s: float
    """Requests per second that were asked for."""
    answered_s: float
    """Requests per second that ended, between the first and the last `ENDS_SHARE` of all ends."""
    in_flight: float
    """Mean number of requests in flight."""
    before: int
    """In flight at its begin."""
    after: int
    """In flight at its end."""
    arrived: int
    """Requests that were due in it."""

    @property
    def is_overloaded(self) -> bool:
        """Whether more and more were in flight."""
        grown = self.after - self.before
        chance = GROWN_DEVIATIONS * sqrt(2 * max(1, self.before))
        return grown > max(GROWN_SHARE * self.arrived, chance)

    @property
    def sentence(self) -> str:
        """The same in words, with the figures."""
        return (
            f"{Reason.OVERLOADED}: {self.before} requests in flight after a quarter of the schedule, {self.after} at "
            f"its end: {self.answered_s:.3g} a second were answered of {self.offered_s:g} offered, so latencies are "
            "those of a queue that grows"
        )


def followed(rows: Sequence[Row]) -> Followed | None:
    """What became of a schedule; None: a closed loop, or too short a schedule to tell.

    Args:
        rows: of `load_requests`, of one load in one attempt.
    """
    spans = [(row["due_s"], row["sent_s"] + row["wall_s"]) for row in rows if row["due_s"] is not None]
    end = max((due for due, _ in spans), default=0.0)
    begin = FILLED_SHARE * end
    ends = sorted(ended for _, ended in spans)
    left_out = int(ENDS_SHARE * len(ends))
    first, last = left_out, len(ends) - 1 - left_out
    if end <= begin or ends[last] <= ends[first]:
        return None
    inside_s = fsum(max(0.0, min(ended, end) - max(due, begin)) for due, ended in spans)
    return Followed(
        offered_s=rows[0]["rate_s"],
        answered_s=(last - first) / (ends[last] - ends[first]),
        in_flight=inside_s / (end - begin),
        before=sum(due <= begin < ended for due, ended in spans),
        after=sum(due <= end < ended for due, ended in spans),
        arrived=sum(begin < due <= end for due, _ in spans),
    )
