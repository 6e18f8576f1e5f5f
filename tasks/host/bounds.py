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
    "install":    Bound(120.0, 3600.0),  # each command that makes an environment; its forecast is `make_s`
    "setup":      Bound(8.0, 2400.0),  # from submitting the runner to its first word: installs, an image of 15 GB
    "starting":   Bound(0.0, 1800.0),
    "preparing":  Bound(120.0, 7200.0),  # environments and data sets of evaluations
    "waiting":    Bound(0.0, 86400.0),  # for a neighbour on the same machine, whose own phases have bounds
    "engine":     Bound(2.0, 3600.0),  # beyond the engine's own `start_timeout_s`
    "measuring":  Bound(4.0, 3600.0),  # a step, from one percent of it to the next
    "committing": Bound(0.0, 3600.0),
    "stopping":   Bound(0.0, 3600.0),
})  # fmt: skip
"""By the phases of a runner's heartbeat (`tasks.runner.HeartbeatSender.phase`), and what comes before them."""
