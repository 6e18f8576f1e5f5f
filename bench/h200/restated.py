"""Speeds and their comparisons from the visits that stand in a merged dataset, and from nothing else.

A lease's own build knew arms that a later lease has replaced since, or that a later guard calls suspect: how starts
differ, a claim, its placebo would rest on data that nobody can see any more. Here they are made anew, by the same
formulae, which want no more of a visit than its rate and how its repeats scatter.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import log, sqrt
from typing import NamedTuple

from configs.visits import Role
from warehouse.consolidate.rows import Row
from warehouse.consolidate.speed.arms import ArmKey
from warehouse.consolidate.speed.claims import WITHHELD, among_others, concluded, speed_pair
from warehouse.consolidate.speed.placebo import among_placebos, placebos_of
from warehouse.consolidate.speed.run import Load, Visits, arms_of, components_of
from warehouse.consolidate.speed.settled import Known, claimed, interval_of, speedup_of
from warehouse.consolidate.speed.visits import SEEN, Seen, Shape
from warehouse.statistics.visits import Estimate, VisitRates, placebo_interval, ratio_interval
from warehouse.verdicts import Reason


class Restated(NamedTuple):
    """Rows of `results_consolidated` and of `pairs`, in which only speeds are touched, and what they rest on."""

    results: list[Row]
    pairs: list[Row]
    known: Known


SPEEDS = (
    "start_sd", "tok_s_lo", "tok_s_hi", "speedup", "speedup_lo", "speedup_hi", "baseline_energy_j_per_token",
)  # fmt: skip
"""Columns that rest on other starts than the row's own."""


def restated(results: Sequence[Row], pairs: Sequence[Row], visits: Sequence[Row]) -> Restated:
    """Say anew what these visits say."""
    arms = arms_of([row | {SEEN: _seen(row)} for row in visits])
    known = Known(arms, components_of(arms), placebos_of([]))
    placebos = among_placebos([*_placebos(known, pairs)])
    known = known._replace(placebos=placebos_of(placebos))
    compared = {_cell_of(pair): pair for pair in pairs if pair["kind"] == "speed"}
    rows, speeds = [], []
    for row in results:
        ours = arms.get(_arm_of(row, "cell"))
        if ours is None or row["tok_s"] is None:
            rows.append(row)
            continue
        row = _without_speed(row) | interval_of(ours, known.components[_load_of(row)])
        pair = compared.get(_cell_of(row))
        if pair is not None and row["verdict"] == "ok":
            row, made = _held_against_ar(row, ours, pair, known)
            speeds += made
        rows.append(row)
    claims = among_others(speeds)
    others = [pair for pair in pairs if pair["kind"] not in ("placebo", "speed")]
    return Restated(concluded(rows, claims), [*others, *claims, *placebos], known)


def _held_against_ar(row: Row, ours: Visits, pair: Row, known: Known) -> tuple[Row, list[Row]]:
    """The row with its speedup, and the comparison; where AR's starts are gone, or not ok, it says so and has neither.

    AR is the control that the cell brought along, else the AR cell of its run, on the same machine.
    """
    load, of_its_own = _load_of(row), row | {"cell_key": pair["baseline_cell_key"]}
    baseline = known.arms.get(_arm_of(row, "control")) or known.arms.get(_arm_of(of_its_own, "cell"))
    if baseline is None or not baseline.is_ok:
        why = "is not ok" if baseline is not None else "stands in the dataset no longer"
        said = f"{Reason.NO_BASELINE}: AR on this machine {why}, so there is no speedup"
        return row | {"details": [*row["details"], said]}, []
    found = known.components[load]
    ratio = ratio_interval(ours.rates, baseline.rates, found)
    withheld = None if ratio is None else known.placebos.withholds(load)
    row = row | speedup_of(ours, baseline, ratio)
    made = speed_pair(row, ours, baseline, ratio, found, pair["served_differently"] or [], withheld)
    return claimed(row, withheld), [pair | made]


def _seen(row: Row) -> Seen:
    """What the build knew of a visit, as far as its row tells: not what served it, nor its place, which it passed."""
    return Seen(None if row["tok_s"] is None else _rates_of(row), None, {})  # type: ignore[arg-type]


def _rates_of(row: Row) -> VisitRates:
    """The visit, with repeats that scatter about its rate as its own did; one by one they are not on record."""
    rate, repeats = log(row["tok_s"]), row["repeats"]
    aside = row["repeat_sd"] * sqrt((repeats - 1) / 2) if repeats > 1 else 0.0
    scattered = (rate - aside, rate + aside) if repeats > 1 else ()
    return VisitRates((*scattered, *[rate] * (repeats - len(scattered))), rate, row["position"])


def _placebos(known: Known, pairs: Sequence[Row]) -> Iterator[tuple[Row, Estimate]]:
    for pair in pairs:
        arm = known.arms.get(_arm_of(pair, "control")) or known.arms.get(_arm_of(pair, "cell"))
        if pair["kind"] != "placebo" or arm is None or not arm.is_ok:
            continue
        found = known.components[_load_of(pair)]
        estimate = placebo_interval(arm.rates, found)
        if estimate is not None:
            yield pair | {"drift": found.drift_share}, estimate


def _load_of(row: Row) -> Load:
    return row["run_id"], row["step"], row["condition"], row["mode"]


def _cell_of(row: Row) -> tuple[str, Load]:
    return row["cell_key"], _load_of(row)


def _arm_of(row: Row, role: Role) -> tuple[ArmKey, Shape]:
    return (row["run_id"], row["cell_key"], row["step"], role, row["machine"]), (row["condition"], row["mode"])


def _without_speed(row: Row) -> Row:
    """Without what the lease's own build said of intervals, of its placebo, and of a speedup."""
    kept = {"details": [each for each in row["details"] if each.split(":")[0] not in WITHHELD]}
    return row | kept | dict.fromkeys(SPEEDS)
