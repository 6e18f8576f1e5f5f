"""How long a running sweep still takes: its forecast, corrected by the pace of what is measured so far."""

from __future__ import annotations

import time
from collections.abc import Callable

from configs.schema import Plan
from flows.forecast.estimates import start_s
from flows.forecast.forecast import forecast
from flows.terminal.progress import RunProgress
from warehouse.ledger.clock import HOUR_S
from warehouse.ledger.verdicts import VERDICTS

FLOW_START_S = 12.0
"""From asking for a flow until its first engine is started: processes of Prefect and of ours (measured 10-14)."""

PUBLISH_S = 6.0
"""From the last commit until the page is written and the flow has ended (measured 5-7 for the demo)."""

PRIOR_S = 40.0
"""Forecast seconds that weigh as if they had been measured at the forecast's pace: one engine start says little."""

PACE_BOUNDS = (0.5, 4.0)
"""Measured seconds per forecast second that are believed."""


class TimeLeft:
    """Seconds left of a run, asked every few seconds."""

    def __init__(self, plan: Plan, clock: Callable[[], float] = time.monotonic) -> None:
        self._plan, self._clock = plan, clock
        self._began_s = clock()
        self._has_begun = False
        self._first_left_s: float | None = None
        self._planned_s, self._changed_s = 0.0, self._began_s

    def __call__(self, progress: RunProgress) -> float | None:
        """Seconds until the page is written; None once nothing is left to measure.

        What is being done counts as done second by second, up to its forecast; what takes longer slows the pace.
        """
        if progress.complete:
            return None
        now_s = self._clock()
        self._has_begun = self._has_begun or any(cell.heartbeat is not None for cell in progress.cells)
        planned_s, doing_s = self._planned(progress)
        if self._first_left_s is None:
            self._first_left_s = planned_s
        if planned_s != self._planned_s:
            self._planned_s, self._changed_s = planned_s, now_s
        credit_s = min(now_s - self._changed_s, doing_s)
        done_s = self._first_left_s - planned_s + credit_s
        low, high = PACE_BOUNDS
        pace = min(max((now_s - self._began_s + PRIOR_S) / (done_s + PRIOR_S), low), high)
        return pace * (planned_s - credit_s)

    def _planned(self, progress: RunProgress) -> tuple[float, float]:
        """Forecast seconds of what is left, the flow's own start and end included, and of what is being done of it."""
        committed = {
            cell.cell_key: [step for step, state in cell.steps.items() if state in (*VERDICTS, "dropped")]
            for cell in progress.cells
        }
        planned = forecast(self._plan, committed)
        left_s, doing_s = planned.wall_h * HOUR_S + PUBLISH_S, 0.0
        steps_s = {(cell.cell_key, step.name): step.seconds for cell in planned.cells for step in cell.steps}
        started_s = start_s(self._plan.gpu)
        for cell in progress.cells:
            step = None if cell.heartbeat is None else cell.heartbeat.step
            if step is not None and step not in committed[cell.cell_key]:
                left_s -= started_s / planned.concurrency  # its engine is up
                doing_s += steps_s.get((cell.cell_key, step), 0.0) / planned.concurrency
            elif cell.heartbeat is not None:
                doing_s += started_s / planned.concurrency
        return (left_s, doing_s) if self._has_begun else (left_s + FLOW_START_S, FLOW_START_S)
