"""How often a cell is looked at: every few seconds while things happen, seldom once it measures in peace."""

from __future__ import annotations

LONGEST_S = 30.0
"""Longest pause between two looks at a rented node. What a look is shown is at most as old as the pause before it, so
whatever happens is seen within 60 s."""

SHARE_OF_AGE = 0.05
"""Pause as a share of the time for which nothing has happened: 3 s in the first minute, 30 s after ten minutes."""


def pause_s(quiet_s: float, shortest_s: float, longest_s: float) -> float:
    """Seconds until the next look at something that has been `quiet_s` as it is."""
    return max(shortest_s, min(longest_s, quiet_s * SHARE_OF_AGE))
