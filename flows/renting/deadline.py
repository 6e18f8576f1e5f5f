"""When a deadline asks for on-demand machines: Uniform Progress, the policy of "Can't Be Late".

Wu, Chiang, Mao, Yang, Friedman, Shenker, Stoica: "Can't Be Late: Optimizing Spot Instance Savings under Deadlines",
NSDI 2024, sections 3.3, 5.2.2 and A.8. With C(0) seconds of work due in R(0) seconds, C(t) and R(t) what is left of
both, cp(t) = C(0) - C(t) the progress made, and a changeover of d seconds from one machine to the next:

    expected progress    ep(t) = t * C(0) / R(0)                                                                (5)
    Uniform Progress     idle, cp(t) < ep(t): on-demand, to catch up
    Taking Risks         but spot whenever it is available, also when behind; stay on it until it is preempted
    Hysteresis           on on-demand: stay on it until cp(t) >= ep(t + 2d)
    Safety Net           idle, R(t) < C(t) + 2d: on-demand until the end
    Loose Deadline       spot only, until C(t) / R(t) = 0.7; t = 0 is then                                     (A.8)

Where we deviate:

- The paper sees whether spot is available; we only learn it by asking. A place without recent failures counts as
  available (`flows.renting.failures`).
- A cell is never moved off a running node, neither from spot nor back to it: rules apply when it needs a new one. So
  hysteresis matters only when an on-demand node was lost.
- The job is the cell in hand together with its place's share of the cells that still wait: the deadline is the run's.
- Progress is counted in committed steps, so an unfinished step counts as work left.
"""

from __future__ import annotations

from typing import NamedTuple

TIGHT = 0.7
"""Work left over time left from which progress is watched (the paper's A.8)."""


class Start(NamedTuple):
    """When a job's progress was first watched: C(0) and R(0), in seconds."""

    work_s: float
    whole_s: float


class Pace(NamedTuple):
    """A job on its way to a deadline, in seconds.

    `start` is None while the deadline is loose; `left_s`: C(t); `time_left_s`: R(t); `changeover_s`: d, from asking
    for a machine until it measures.
    """

    start: Start | None
    left_s: float
    time_left_s: float
    changeover_s: float

    @property
    def is_tight(self) -> bool:
        """Whether progress has to be watched from now on."""
        return self.left_s >= TIGHT * self.time_left_s

    @property
    def is_behind(self) -> bool:
        """Uniform Progress: cp(t) < ep(t)."""
        return self.start is not None and self._ahead_s(self.start, 0.0) < 0

    @property
    def has_caught_up(self) -> bool:
        """Hysteresis: cp(t) >= ep(t + 2d)."""
        return self.start is None or self._ahead_s(self.start, 2 * self.changeover_s) >= 0

    @property
    def is_last_call(self) -> bool:
        """Safety Net: R(t) < C(t) + 2d."""
        return self.time_left_s < self.left_s + 2 * self.changeover_s

    @property
    def until_due_s(self) -> float:
        """Seconds until another rule applies if nothing is measured meanwhile; 0 if one does now."""
        until_last_call_s = self.time_left_s - self.left_s - 2 * self.changeover_s
        if self.start is None:
            until_watched_s = self.time_left_s - self.left_s / TIGHT
        else:
            until_watched_s = self._ahead_s(self.start, 0.0) * self.start.whole_s / max(self.start.work_s, 1.0)
        return max(0.0, min(until_last_call_s, until_watched_s))

    def _ahead_s(self, start: Start, later_s: float) -> float:
        """cp(t) - ep(t + later)."""
        passed_s = start.whole_s - self.time_left_s + later_s
        expected_s = start.work_s if start.whole_s <= 0 else min(start.work_s, passed_s * start.work_s / start.whole_s)
        return start.work_s - self.left_s - expected_s
