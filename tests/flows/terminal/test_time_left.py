"""The time left of a run: right within a factor of 1.5, on machines slower and faster than the forecast's."""

from __future__ import annotations

import pytest

from configs.expand import expand
from configs.load import load_sweep
from flows.forecast.estimates import start_s
from flows.forecast.forecast import forecast
from flows.terminal.progress import FLOW_START_S, PUBLISH_S, CellProgress, RunProgress, StepState, TimeLeft
from warehouse.ledger.lease import Heartbeat

PLAN = expand(load_sweep("demo"))


class Run:
    """The demo, measured at `pace` times its forecast: what the ledger shows at each moment."""

    def __init__(self, pace: float) -> None:
        self.now_s = 0.0
        self._steps: list[tuple[float, float, str, str]] = []
        """Begin, end, cell and name, in order; between two of different starts an engine starts."""
        seconds = {(cell.cell_key, step.name): step.seconds for cell in forecast(PLAN, {}).cells for step in cell.steps}
        at_s = FLOW_START_S
        starts = [(start.leg, planned.cell.cell_key, start) for planned in PLAN.cells for start in planned.starts]
        for _, key, start in sorted(starts, key=lambda each: each[0]):
            at_s += pace * start_s(PLAN.gpu)
            for each in start.measurements:
                began_s, at_s = at_s, at_s + pace * seconds[key, each.name]
                self._steps.append((began_s, at_s, key, each.name))
        self.end_s = at_s + PUBLISH_S

    def progress(self) -> RunProgress:
        states: dict[str, dict[str, StepState]] = {planned.cell.cell_key: {} for planned in PLAN.cells}
        for _, end_s, key, name in self._steps:
            states[key][name] = "ok" if end_s <= self.now_s else "waiting"
        cells = (CellProgress(key, key, each, {}, self._beat(key)) for key, each in states.items())
        return RunProgress("r", tuple(cells))

    def _beat(self, key: str) -> Heartbeat | None:
        now = next((each for each in self._steps if each[1] > self.now_s), None)
        if now is None or self.now_s <= FLOW_START_S or now[2] != key:
            return None
        step = now[3] if now[0] <= self.now_s else None
        return Heartbeat(attempt=1, phase="measuring", step=step, at="2026-11-26T10:00:00+00:00")


@pytest.mark.slow(1)
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
