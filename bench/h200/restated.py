"""Speeds and their comparisons from the visits that stand in a merged dataset, and from nothing else.

A lease's own build knew arms that a later lease has replaced since, or that a later guard calls suspect: how starts
differ, a claim, its placebo would rest on data that nobody can see any more. Here they are made anew, by the same
formulae, which want no more of a visit than its rate and how its repeats scatter.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from math import exp, log, sqrt

from warehouse.consolidate.rows import Row
from warehouse.consolidate.speed.claims import WITHHELD, among_others, concluded, speed_pair
from warehouse.consolidate.speed.placebo import among_placebos, placebos_of
from warehouse.consolidate.speed.run import Visits
from warehouse.consolidate.speed.settled import claimed, interval_of, speedup_of
from warehouse.statistics.visits import (
    Components,
    VisitRates,
    components,
    placebo_interval,
    ratio_interval,
)

Arms = Mapping[tuple[object, ...], Visits]

CONDITION = ("run_id", "step", "condition", "mode")
"""What arms share that differ from start to start alike."""


def restated(results: Sequence[Row], pairs: Sequence[Row], visits: Sequence[Row]) -> tuple[list[Row], list[Row]]:
    """The rows of `results_consolidated` and of `pairs`, in which only speeds are touched."""
    arms = _arms_of(visits)
    found = _components_of(arms)
    placebos = among_placebos([*_placebos(arms, found, pairs)])
    allowed = placebos_of(placebos)
    compared = {_cell_of(pair): pair for pair in pairs if pair["kind"] == "speed"}
    rows, speeds = [], []
    for row in results:
        ours = arms.get(_arm_of(row, "cell"))
        if ours is None or row["tok_s"] is None:
            rows.append(row)
            continue
        load = tuple(row[name] for name in CONDITION)
        known = found.get(load) or components([])
        row = _without_speed(row) | interval_of(ours, known)
        pair, baseline = compared.get(_cell_of(row)), arms.get(_arm_of(row, "control"))
        if pair is not None and baseline is not None and row["verdict"] == "ok" and _is_ok(baseline):
            ratio = ratio_interval(ours.rates, baseline.rates, known)
            withheld = None if ratio is None else allowed.withholds(load)
            row |= speedup_of(ours, baseline, ratio)
            made = speed_pair(row, ours, baseline, ratio, known, pair["served_differently"] or [], withheld)
            speeds.append(pair | made)
            row = claimed(row, withheld)
        rows.append(row)
    claims = among_others(speeds)
    others = [pair for pair in pairs if pair["kind"] not in ("placebo", "speed")]
    return concluded(rows, claims), [*others, *claims, *placebos]


def _arms_of(visits: Sequence[Row]) -> Arms:
    found: dict[tuple[object, ...], list[Row]] = {}
    for row in sorted(visits, key=lambda each: each["visit"]):
        if row["complete"] and row["tok_s"] is not None:
            found.setdefault(_arm_of(row, row["role"]), []).append(row)
    return {key: Visits(None, tuple(map(_rates_of, rows)), tuple(rows)) for key, rows in found.items()}


def _rates_of(row: Row) -> VisitRates:
    """The visit, with repeats that scatter about its rate as its own did; one by one they are not on record."""
    rate, repeats = log(row["tok_s"]), row["repeats"]
    aside = row["repeat_sd"] * sqrt((repeats - 1) / 2) if repeats > 1 else 0.0
    scattered = (rate - aside, rate + aside) if repeats > 1 else ()
    return VisitRates((*scattered, *[rate] * (repeats - len(scattered))), rate, row["position"])


def _components_of(arms: Arms) -> dict[tuple[object, ...], Components]:
    trusted: dict[tuple[object, ...], list[tuple[VisitRates, ...]]] = {}
    for arm in arms.values():
        if _is_ok(arm):
            trusted.setdefault(tuple(arm.rows[0][name] for name in CONDITION), []).append(arm.rates)
    return {load: components(rates) for load, rates in trusted.items()}


def _placebos(arms: Arms, found: Mapping[tuple[object, ...], Components], pairs: Sequence[Row]) -> Iterator[Row]:
    for pair in pairs:
        arm = arms.get(_arm_of(pair, "control")) or arms.get(_arm_of(pair, "cell"))
        if pair["kind"] != "placebo" or arm is None or not _is_ok(arm):
            continue
        known = found[tuple(pair[name] for name in CONDITION)]
        estimate = placebo_interval(arm.rates, known)
        if estimate is not None:
            seen = {"ratio": exp(estimate.log), "ratio_lo": exp(estimate.lo), "ratio_hi": exp(estimate.hi)}
            yield pair | seen | {"ratio_p": estimate.p}


def _is_ok(arm: Visits) -> bool:
    return all(row["verdict"] == "ok" and row["machine"] is not None for row in arm.rows)


def _cell_of(row: Row) -> tuple[object, ...]:
    return tuple(row[name] for name in ("cell_key", *CONDITION))


def _arm_of(row: Row, role: str) -> tuple[object, ...]:
    return (role, row["machine"], *_cell_of(row))


def _without_speed(row: Row) -> Row:
    """Without what the lease's own build said of intervals, of its placebo, and of a speedup."""
    kept = {"details": [each for each in row["details"] if each.split(":")[0] not in WITHHELD]}
    return row | kept | dict.fromkeys(("start_sd", "tok_s_lo", "tok_s_hi", "speedup", "speedup_lo", "speedup_hi"))
