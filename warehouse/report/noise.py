"""What a speed varies by: from start to start, from repeat to repeat, and with the machine's time."""

from __future__ import annotations

import math
from collections.abc import Sequence
from math import fsum
from typing import NamedTuple

from warehouse.display.figures import Row
from warehouse.display.view import View
from warehouse.statistics.visits import best_repeats


class Noise(NamedTuple):
    """Of one condition on one kind of machine in one run; shares of the rate, None where nothing shows it."""

    run_id: str
    gpu: str
    condition: str
    mode: str
    start_sd: float | None
    repeat_sd: float | None
    """Root mean square over cells."""
    drift: float | None
    """From one visit to the next, taken out of the comparisons."""
    repeats: float | None
    """Per start, as measured: mean over visits."""
    best: float | None
    """Repeats per start that make the narrowest interval of the same machine time."""


def noises(view: View) -> list[Noise]:
    """One per run, kind of machine and condition that has a spread, in the order of the rows."""
    groups: dict[tuple[str, str, str, str], list[Row]] = {}
    for row in view.rates():
        if row["repeat_sd"] is not None or row["start_sd"] is not None:
            groups.setdefault((row["run_id"], row["gpu"], row["condition"], row["mode"]), []).append(row)
    return [_noise(view, shape, rows) for shape, rows in groups.items()]


def _noise(view: View, shape: tuple[str, str, str, str], rows: Sequence[Row]) -> Noise:
    start_sd = next((row["start_sd"] for row in rows if row["start_sd"] is not None), None)
    squares = [row["repeat_sd"] ** 2 for row in rows if row["repeat_sd"] is not None]
    repeat_var = fsum(squares) / len(squares) if squares else None
    visits = [visit for visit in view.visits if _shape(visit) == shape and visit["complete"] and visit["repeats"]]
    return Noise(
        *shape,
        start_sd=start_sd,
        repeat_sd=None if repeat_var is None else math.sqrt(repeat_var),
        drift=next((pair["drift"] for pair in view.pairs if _shape(pair) == shape and pair["drift"] is not None), None),
        repeats=fsum(visit["repeats"] for visit in visits) / len(visits) if visits else None,
        best=_best(view, shape[0], visits, start_sd, repeat_var),
    )


def _best(
    view: View, run_id: str, visits: Sequence[Row], start_sd: float | None, repeat_var: float | None
) -> float | None:
    """None where a spread or a duration is unknown."""
    start_s = start_seconds(view, run_id)
    timed = [visit for visit in visits if visit["gpu_s"]]
    if start_sd is None or repeat_var is None or start_s is None or not timed:
        return None
    repeat_s = fsum(visit["gpu_s"] for visit in timed) / fsum(visit["repeats"] for visit in timed)
    return best_repeats(start_sd**2, repeat_var, start_s, repeat_s)


def start_seconds(view: View, run_id: str) -> float | None:
    """Seconds of a start: what the run's tries took and no row did, over its starts. None: not known.

    It has the loading of weights, the compiling and the warming up; starts for untimed steps are not counted, so it is
    a little too long.
    """
    keys = ("served_cell_key", "cell_key", "role", "visit", "attempt", "machine")
    starts = {tuple(visit[name] for name in keys) for visit in view.visits if visit["run_id"] == run_id}
    tried_s = fsum(row["wall_s"] or 0.0 for row in view.attempts if row["run_id"] == run_id)
    measured_s = fsum(row["gpu_s"] or 0.0 for row in view.rows if row["run_id"] == run_id)
    return (tried_s - measured_s) / len(starts) if starts and tried_s > measured_s else None


def _shape(row: Row) -> tuple[str, str, str, str]:
    return row["run_id"], row["gpu"], row["condition"], row["mode"]
