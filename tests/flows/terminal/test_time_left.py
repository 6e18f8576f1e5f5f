"""The time left of a run: right within a factor of 1.5, on machines slower and faster than the forecast's."""

from __future__ import annotations

import pytest

from configs.expand import expand
from configs.load import load_sweep
from flows.forecast.estimates import start_s
from flows.forecast.forecast import forecast
from flows.terminal.progress import CellProgress, RunProgress, StepState
from flows.terminal.time_left import FLOW_START_S, PUBLISH_S, TimeLeft
from warehouse.lease import Heartbeat

PLAN = expand(load_sweep("demo"))


class Run:
    """The demo, measured at `pace` times its forecast: what the ledger shows at each moment."""

    def __init__(self, pace: float) -> None:
        self.now_s = 0.0
        self._ends: list[tuple[float, str, str]] = []
        seconds = {(cell.cell_key, step.name): step.seconds for cell in forecast(PLAN, {}).cells for step in cell.steps}
        at_s = FLOW_START_S
        starts = [(start.leg, planned.cell.cell_key, start) for planned in PLAN.cells for start in planned.starts]
        for _, key, start in sorted(starts, key=lambda each: each[0]):
            at_s += pace * start_s(PLAN.gpu)
            for each in start.measurements:
                at_s += pace * seconds[key, each.name]
                self._ends.append((at_s, key, each.name))
        self.end_s = at_s + PUBLISH_S

    def progress(self) -> RunProgress:
        states: dict[str, dict[str, StepState]] = {planned.cell.cell_key: {} for planned in PLAN.cells}
        for at_s, key, name in self._ends:
            states[key][name] = "ok" if at_s <= self.now_s else "waiting"
        cells = (CellProgress(key, key, each, {}, self._beat(key), 1) for key, each in states.items())
        return RunProgress("r", tuple(cells))

    def _beat(self, key: str) -> Heartbeat | None:
        """The heartbeat of the cell that is measured now."""
        now = next((cell for at_s, cell, _ in self._ends if at_s > self.now_s), None)
        if self.now_s <= FLOW_START_S or now != key:
            return None
        return Heartbeat(attempt=1, phase="engine", at="2026-11-26T10:00:00+00:00")


@pytest.mark.parametrize(("pace", "from_s"), [(0.7, 60), (1.0, 60), (1.6, 60), (2.5, 200)])
def test_it_is_right_within_half_of_it_from_the_first_minutes_on(pace: float, from_s: float) -> None:
    run = Run(pace)
    left = TimeLeft(PLAN, lambda: run.now_s)
    while not run.progress().complete:
        said_s = left(run.progress())
        assert said_s is not None
        if run.now_s >= from_s:
            true_s = run.end_s - run.now_s
            assert true_s / 1.5 - 15 <= said_s <= true_s * 1.5 + 15, f"{said_s:.0f} s said, {true_s:.0f} s true"
        run.now_s += 2.0
    assert left(run.progress()) is None
