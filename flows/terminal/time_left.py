"""How long a running sweep still takes: its forecast, corrected by the pace of what is measured so far."""

from __future__ import annotations

import time
from collections.abc import Callable

from configs.schema import Plan
from flows.forecast.forecast import forecast
from flows.terminal.progress import RunProgress
from warehouse.verdicts import VERDICTS

FLOW_START_S = 12.0
"""From asking for a flow until its first engine is started: processes of Prefect and of ours (measured 10-14)."""

PUBLISH_S = 6.0
"""From the last commit until the page is written and the flow has ended (measured 5-7 for the demo)."""

PRIOR_S = 60.0
"""Forecast seconds that weigh as if they had been measured at the forecast's pace: one engine start says little."""

PACE_BOUNDS = (0.5, 4.0)
"""Measured seconds per forecast second that are believed."""


class TimeLeft:
    """Seconds left of a run, asked every few seconds."""

    def __init__(self, plan: Plan, clock: Callable[[], float] = time.monotonic) -> None:
        self._plan, self._clock = plan, clock
        self._began_s = clock()
        self._first_left_s: float | None = None
        self._measured = -1
        self._has_begun = False
        self._changed_s = self._left_then_s = 0.0

    def __call__(self, progress: RunProgress) -> float | None:
        """Seconds until the page is written; None once nothing is left to measure.

        Counted down between two commits, but never below the pace of what has not begun yet.
        """
        now_s = self._clock()
        self._has_begun = self._has_begun or any(cell.heartbeat is not None for cell in progress.cells)
        if progress.complete:
            return None
        planned_s = self._planned_s(progress)
        if self._first_left_s is None:
            self._first_left_s = planned_s
        if progress.measured != self._measured:
            self._measured, self._changed_s = progress.measured, now_s
            done_s = self._first_left_s - planned_s
            low, high = PACE_BOUNDS
            pace = min(max((now_s - self._began_s + PRIOR_S) / (done_s + PRIOR_S), low), high)
            self._left_then_s = pace * planned_s
        left_s = self._left_then_s - (now_s - self._changed_s)
        return max(left_s, self._left_then_s / 2)

    def _planned_s(self, progress: RunProgress) -> float:
        """Forecast seconds of what has no commit yet, the flow's own start and end included."""
        committed = {
            cell.cell_key: [step for step, state in cell.steps.items() if state in (*VERDICTS, "dropped")]
            for cell in progress.cells
        }
        cells_s = sum(cell.total_s for cell in forecast(self._plan, committed).cells)
        return cells_s + PUBLISH_S + (0.0 if self._has_begun else FLOW_START_S)
