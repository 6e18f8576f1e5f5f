"""Whether a runner whose heart beats gets anywhere: it may hang in a download, a lock or a step for ever."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from configs.schema import PlannedCell
from configs.steps.eval import EvalStep
from configs.visits import Measurement, Start
from flows.forecast.estimates import download_s, measurement_s, start_s
from tasks.host.bounds import BOUNDS
from tasks.host.environment_spec import ENVIRONMENTS, Name
from warehouse.ledger.lease import Heartbeat

CHECK_EVERY_S = 300.0  # from one look at where a runner is to the next; each reads its heartbeat

GAP_S = 2 * CHECK_EVERY_S
"""The most that one pause between two looks counts: in a longer one the flow slept, or its store was away."""


class Standstill:
    """Follows one runner by its heartbeats. Progress is another phase, another step, or another percent of it.

    Several starts of an engine look alike, and what lies between may be shorter than a pause: its seconds tell.
    """

    def __init__(self, planned: PlannedCell) -> None:
        """Nothing is known of its runner yet."""
        self._planned = planned
        self._point: tuple[object, ...] = ()
        self._stood_s = self._looked_s = 0.0

    def is_due(self, now_s: float) -> bool:
        """Whether the next look is due, by the flow's clock."""
        return now_s - self._looked_s >= CHECK_EVERY_S

    def why(self, beat: Heartbeat, now_s: float) -> str | None:
        """Why the runner is given up, with phase, seconds and bound; None: it gets somewhere, or still may."""
        between_s = beat.smoke_s + beat.measure_s if beat.phase == "engine" else beat.load_s
        point = beat.attempt, beat.phase, beat.step, int(beat.percent), between_s
        gap_s, self._looked_s = min(now_s - self._looked_s, GAP_S), now_s
        if point != self._point:
            self._point, self._stood_s = point, 0.0
            return None
        self._stood_s += gap_s
        forecast_s = phase_s(self._planned, beat.phase, beat.step)
        bound = BOUNDS.get(beat.phase, BOUNDS["measuring"])
        if self._stood_s <= bound.of(forecast_s):
            return None
        where = f"{beat.phase} {beat.step or ''}".rstrip()
        times = f"{bound.times:g} times the forecast of {forecast_s:.0f} s, at least " if bound.times else ""
        return (
            f"no progress in phase {where!r} for {self._stood_s:.0f} s; its bound is {bound.of(forecast_s):.0f} s: "
            f"{times}{bound.floor_s:.0f} s"
        )


def phase_s(planned: PlannedCell, phase: str, step: str | None) -> float:
    """Forecast seconds of a phase of a heartbeat; of a step or phase that isn't known, those of all steps."""
    starts = planned.starts
    if phase == "preparing":
        frameworks = {spec.framework for spec in planned.steps if isinstance(spec, EvalStep)}
        return sum(BOUNDS["install"].of(ENVIRONMENTS[cast(Name, name)].make_s) for name in frameworks)
    if phase == "engine":
        served = [start.served for start in starts]
        return max(max(start_s(planned.gpu) + download_s(cell), cell.engine.start_timeout_s) for cell in served)
    if phase in BOUNDS and phase != "measuring":
        return 0.0
    named = [(start, each) for start, each in _measured(starts) if each.name == step]
    return sum(measurement_s(planned, start.served, each) for start, each in named or _measured(starts))


def _measured(starts: Sequence[Start]) -> list[tuple[Start, Measurement]]:
    return [(start, each) for start in starts for each in start.measurements]
