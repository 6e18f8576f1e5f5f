"""How long each phase of a run may go without progress: a multiple of its forecast, and never less than a floor.

Both are generous: a forecast is of a quiet machine with a fast line, and a bound is for what would never end. A launch
has a bound of its own in the sweep, `cloud.launch_h`. Standard library only, because environments are made with it.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple


class Bound(NamedTuple):
    """The longest time without progress: so many times the forecast, at least `floor_s`."""

    times: float
    floor_s: float

    def of(self, forecast_s: float) -> float:
        """The bound in seconds, for a phase that should take `forecast_s`."""
        return max(self.floor_s, self.times * forecast_s)


BOUNDS: Mapping[str, Bound] = MappingProxyType({
    #                   times  floor
    "install":    Bound(120.0, 7200.0),  # each command that makes an environment: 2 GB at 300 KB/s
    "setup":      Bound(8.0, 2400.0),  # from submitting the runner to its first word: installs, an image of 15 GB
    "starting":   Bound(0.0, 1800.0),
    "preparing":  Bound(2.0, 7200.0),  # data sets, and environments, of which each may take as long as its install
    "waiting":    Bound(0.0, 604800.0),  # for a neighbour on the same machine: a cell of days, whose phases have bounds
    "engine":     Bound(2.0, 3600.0),  # a start and its download, which the engine's `start_timeout_s` ends first
    "measuring":  Bound(4.0, 3600.0),  # a step, from one percent of it to the next
    "committing": Bound(0.0, 3600.0),
    "stopping":   Bound(0.0, 3600.0),
})  # fmt: skip
"""By the phases of a runner's heartbeat (`tasks.runner.HeartbeatSender.phase`), and what comes before them."""
