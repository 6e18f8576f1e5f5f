"""What a speed varies by: from start to start, from repeat to repeat, and with the machine's time."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from math import fsum
from typing import NamedTuple

from warehouse.dataset.statistics.visits import best_repeats
from warehouse.dataset.tables import SMOKE
from warehouse.report.display.figures import Row, technique_name
from warehouse.report.display.view import MEMORY_STEP, View


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
    """From one visit to the next, taken out of the comparisons; None too where too few visits could tell one."""
    repeats: float | None
    """Per start, as measured: mean over visits."""
    best: float | None
    """Repeats per start that make the narrowest interval of the same machine time."""
    whose: str
    """The cells, where those of one condition have several spreads; else empty."""


def noises(view: View) -> list[Noise]:
    """One per run, kind of machine and condition that has a spread, in the order of the rows.

    Several where parts of a run were consolidated apart (leases whose stores are gone): each has a spread of its own.
    """
    groups: dict[tuple[str, str, str, str], list[Row]] = {}
    for row in view.rates():
        if row["repeat_sd"] is not None or row["start_sd"] is not None:
            groups.setdefault(_shape(row), []).append(row)
    parts = {shape: _apart(rows) for shape, rows in groups.items()}
    return [
        _noise(view, shape, part, _names(part) if len(several) > 1 else "")
        for shape, several in parts.items()
        for part in several
    ]


def _apart(rows: Sequence[Row]) -> list[list[Row]]:
    """Rows by the spread of starts that was fitted to them; all together where it was one, or none."""
    fits = dict.fromkeys(row["start_sd"] for row in rows if row["start_sd"] is not None)
    return [[row for row in rows if row["start_sd"] == fit] for fit in fits] if len(fits) > 1 else [[*rows]]


def _names(rows: Sequence[Row]) -> str:
    return ", ".join(dict.fromkeys(f"{row['model']} {technique_name(row)}" for row in rows))


def _noise(view: View, shape: tuple[str, str, str, str], rows: Sequence[Row], whose: str) -> Noise:
    start_sd = next((row["start_sd"] for row in rows if row["start_sd"] is not None), None)
    squares = [row["repeat_sd"] ** 2 for row in rows if row["repeat_sd"] is not None]
    repeat_var = fsum(squares) / len(squares) if squares else None
    cells = {row["cell_key"] for row in rows}
    visits = [each for each in view.visits if _is_of(each, shape, cells) and each["complete"] and each["repeats"]]
    drifts = (pair["drift"] for pair in view.pairs if _is_of(pair, shape, cells) and pair["drift"] is not None)
    return Noise(
        *shape,
        start_sd=start_sd,
        repeat_sd=None if repeat_var is None else math.sqrt(repeat_var),
        drift=next(drifts, None),
        repeats=fsum(visit["repeats"] for visit in visits) / len(visits) if visits else None,
        best=_best(view, shape[0], visits, start_sd, repeat_var),
        whose=whose,
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
    """Seconds of an engine start, mean over the run: weights, compiling, until it answers. None: not known.

    Of tries that ended well and recorded what starting took: in any other, a start may have left nothing to count.
    """
    tries = [row for row in view.attempts if row["run_id"] == run_id and row["outcome"] == "completed"]
    counted = [(row["load_s"], starts) for row in tries if row["load_s"] is not None and (starts := _starts(view, row))]
    return fsum(load_s for load_s, _ in counted) / sum(starts for _, starts in counted) if counted else None


def _starts(view: View, tried: Row) -> int:
    """Engine starts of a try, by what they left: visits, and what isn't timed, where that had a start of its own.

    Beside a control that is the fourth start (`configs.visits.starts_of`); else it shares the cell's own, which an
    earlier try may have done. Memory is read in the starts of the speeds, and leaves no visits.
    """
    own = [visit for visit in view.visits if _cell(visit) == _cell(tried)]
    timed = {(visit["role"], visit["visit"]) for visit in own if visit["attempt"] == tried["attempt"]}
    steps = {MEMORY_STEP, *(visit["step"] for visit in own)}
    rows = view.of(run_id=tried["run_id"], cell_key=tried["cell_key"])
    others = [row for row in rows if row["step"] not in steps and row["metric"] != SMOKE]
    is_beside_control = any(visit["role"] == "control" for visit in own)
    is_apart = is_beside_control or not any(role == "cell" for role, _ in timed)
    return len(timed) + (is_apart and any(row["attempt"] == tried["attempt"] for row in others))


def _cell(row: Row) -> tuple[str, str]:
    return row["run_id"], row["cell_key"]


def _is_of(row: Row, shape: tuple[str, str, str, str], cells: Collection[str]) -> bool:
    return _shape(row) == shape and row["cell_key"] in cells


def _shape(row: Row) -> tuple[str, str, str, str]:
    return row["run_id"], row["gpu"], row["condition"], row["mode"]
