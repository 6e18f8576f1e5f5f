"""Whether the intervals of speedups hold: the designs that sweeps use, simulated through the product's own functions.

    bin/run python bench/coverage.py [RUNS]

One row per design, cells, repeats and scatter. Each run has three conditions, arms of different speed, and a drift of
0.5 % per start but for rows that say "none".

"covers": the share of the 95 % intervals of all ratios that contain the true one. It must be 93 to 97 %, or at least
93 % with fewer than four cells. "any false": the share of families of identical arms with any claim, at most 5 %.
A family is the cells of a run under one condition. A claim is an interval that excludes 1, and p below 5 % after Holm.

The second table has the lowest and highest coverage of each design, and its highest share of false families. The third
has the A/A check (AR's last start over its first). It alarms in at most 5 % of runs, after Holm over the three
conditions. Fewer than four cells have no such bound: no drift can be fitted there.

Exit code 1: a bound is missed by more than 2.6 standard errors, which chance does once in 200. The last line is JSON.

Repeats "3-15" stop when the t interval of this start's repeats is within 2 %. "0.5 | 5" is a steady AR and noisy
techniques. Bracketed: each technique on a machine of its own between two starts of its control, and an AR cell with two
starts. Lone: one such bracket and no AR cell, so no A/A check and no claim. Mirrored: one machine, all cells forwards
and then backwards. Balanced: mirrored, and AR once more in the middle.
"""

from __future__ import annotations

import itertools
import json
import math
import sys
from collections.abc import Iterator
from multiprocessing import Pool
from random import Random
from statistics import mean, stdev
from typing import Literal, NamedTuple

from warehouse.dataset.statistics.proportions import holm
from warehouse.dataset.statistics.starts import Arm, StartRates, components, placebo_interval, ratio_interval
from warehouse.ledger.formulas import student_quantile

SEED = 20261122
RUNS = 220  # of a row with four cells; one with eleven has a third: each has more than 2000 ratios
FEW = 4  # cells from which an interval may not be too wide, either
CONDITIONS = 3
CHANCE = 2.6  # standard errors by which a figure may be beyond a bound: chance goes so far once in 200
LOWEST, HIGHEST, FALSE = 0.93, 0.97, 0.05
MIN_REPEATS, MAX_REPEATS, WITHIN = 3, 15, 0.02
UNTIL_PRECISE = 0  # instead of a number of repeats: as many as it takes
Design = Literal["lone", "bracketed", "mirrored", "balanced"]

T = [math.inf, math.inf, *(student_quantile(0.025, n - 1) for n in range(2, MAX_REPEATS + 1))]
"""Quantile of the interval of so many repeats."""


class Row(NamedTuple):
    """One setting; scatters are standard deviations of log rates."""

    design: Design
    cells: int
    repeats: int
    ar_sd: float
    technique_sd: float
    start_sd: float
    drift: float


class Layout(NamedTuple):
    """Positions of each arm's starts, which arms are techniques, and which arms are compared."""

    positions: tuple[tuple[float, ...], ...]
    techniques: frozenset[int]
    ratios: tuple[tuple[int, int], ...]
    ar: int


class Seen(NamedTuple):
    """Of one run: shares of its ratios that are covered, of its families with a claim; the A/A check."""

    covered: float
    told: float
    alarm: bool | None  # None: none can be made


def main() -> None:
    """Simulate all rows on two cores and print both tables."""
    runs = int(sys.argv[1]) if len(sys.argv) > 1 else RUNS
    rows = list(settings())
    with Pool(2) as pool:
        found = pool.starmap(simulate, [(row, _runs(row, runs)) for row in rows], 1)
    print("design     cells repeats  repeat sd %  start sd %  drift %  covers %         any false %")
    missed = [print_row(row, seen) for row, seen in zip(rows, found, strict=True)]
    print("\ndesign     cells repeats  rows  covers %     any false, most %")
    ranges(rows, found)
    print("\nplacebo    cells  start sd %  runs   alarms %")
    missed += placebos(rows, found)
    print(json.dumps({"rows": len(rows), "missed": sum(missed)}))
    sys.exit(any(missed))


def _runs(row: Row, runs: int) -> int:
    """Half of them with few cells, which are many rows; a third with many, each of which is slow."""
    return runs if row.cells == FEW else max(2, runs // (2 if row.cells < FEW else 3))


def settings() -> Iterator[Row]:
    """Every combination with a drift, and five repeats without one; of fewer than four cells not all repeats."""
    scatters = ((0.005, 0.005), (0.02, 0.02), (0.05, 0.05), (0.005, 0.05))
    sizes: tuple[tuple[Design, int], ...] = (
        ("lone", 2), ("bracketed", 2), ("bracketed", 3), ("bracketed", 4), ("bracketed", 11),
        ("mirrored", 2), ("mirrored", 3), ("mirrored", 4), ("mirrored", 11), ("balanced", 2), ("balanced", 4),
    )  # fmt: skip
    counts = (3, 5, 9, UNTIL_PRECISE)
    for (design, cells), repeats, (ar, technique), start, drift in itertools.product(
        sizes, counts, scatters, (0.0, 0.01, 0.03), (0.005, 0.0)
    ):
        if cells < FEW and repeats in (5, 9):
            continue
        if drift or (repeats == 5 and ar == technique == 0.02):
            yield Row(design, cells, repeats, ar, technique, start, drift)


def layout(design: Design, cells: int) -> Layout:
    """Which arms a sweep has, each on its machine."""
    if design in ("mirrored", "balanced"):
        middle = (float(cells),) if design == "balanced" else ()
        last = 2 * cells - 1 + len(middle)
        positions = tuple((float(cell), *(middle if cell == 0 else ()), float(last - cell)) for cell in range(cells))
        return Layout(positions, frozenset(range(1, cells)), tuple((cell, 0) for cell in range(1, cells)), 0)
    brackets: tuple[tuple[float, ...], ...] = ((1.0,), (0.0, 2.0)) * (cells - 1)
    if design == "lone":
        return Layout(brackets, frozenset({0}), ((0, 1),), 1)
    techniques = frozenset(range(0, len(brackets), 2))
    return Layout(
        (*brackets, (0.0, 1.0)), techniques, tuple((arm, arm + 1) for arm in sorted(techniques)), len(brackets)
    )


def simulate(row: Row, runs: int) -> list[Seen]:
    """Some runs of one setting, with their own seed."""
    random = Random(f"{SEED} {row}")
    plan = layout(row.design, row.cells)
    return [one_run(row, plan, random) for _ in range(runs)]


def one_run(row: Row, plan: Layout, random: Random) -> Seen:
    """Three conditions, each with arms, ratios and an A/A check."""
    covered = told = 0
    placebos = []
    for _ in range(CONDITIONS):
        truths = [random.uniform(0, 1) for _ in plan.positions]
        arms = [one_arm(row, plan, number, truth, random) for number, truth in enumerate(truths)]
        found = components(arms)
        p, apart = [], []
        for cell, base in plan.ratios:
            truth = truths[cell] - truths[base]
            estimate = ratio_interval(shifted(arms[cell], truth), arms[base], found)
            assert estimate is not None
            covered += estimate.lo <= 0 <= estimate.hi
            p.append(estimate.p)
            apart.append(not estimate.lo <= 0 <= estimate.hi)
        placebo = placebo_interval(arms[plan.ar], found)
        if placebo is not None:
            placebos.append(placebo.p)
            told += any(each < FALSE and is_apart for each, is_apart in zip(holm(p), apart, strict=True))
    ratios = CONDITIONS * len(plan.ratios)
    alarm = min(holm(placebos)) < FALSE if placebos else None
    return Seen(covered / ratios, told / CONDITIONS, alarm)


def one_arm(row: Row, plan: Layout, number: int, truth: float, random: Random) -> Arm:
    """Each start: its own level, a drift, repeats about both. Seconds per token have the mean that truth says."""
    sd = row.technique_sd if number in plan.techniques else row.ar_sd
    visits = []
    for position in plan.positions[number]:
        level = truth + row.drift * position + random.gauss(0, row.start_sd) + sd**2 / 2
        rates = repeats_until_precise(level, sd, random) if row.repeats == UNTIL_PRECISE else ()
        rates = rates or tuple(random.gauss(level, sd) for _ in range(row.repeats))
        visits.append(StartRates(rates, math.log(len(rates) / sum(math.exp(-rate) for rate in rates)), position))
    return tuple(visits)


def repeats_until_precise(level: float, sd: float, random: Random) -> tuple[float, ...]:
    """Repeats until their t interval is within 2 %."""
    rates: list[float] = []
    while len(rates) < MAX_REPEATS:
        rates.append(random.gauss(level, sd))
        n = len(rates)
        if n >= MIN_REPEATS and T[n] * stdev(rates) / math.sqrt(n) <= WITHIN:
            break
    return tuple(rates)


def shifted(arm: Arm, by: float) -> Arm:
    """An arm made as fast as its baseline, so that their true ratio is 1."""
    return tuple(
        StartRates(tuple(rate - by for rate in visit.log_rates), visit.log_rate - by, visit.position) for visit in arm
    )


def print_row(row: Row, seen: list[Seen]) -> bool:
    """Print a row; True where it misses a bound."""
    covered, told = mean(each.covered for each in seen), mean(each.told for each in seen)
    error = stdev(each.covered for each in seen) / math.sqrt(len(seen))
    repeats = "3-15" if row.repeats == UNTIL_PRECISE else str(row.repeats)
    sd = f"{row.ar_sd:.1%}" if row.ar_sd == row.technique_sd else f"{row.ar_sd:.1%} | {row.technique_sd:.0%}"
    beyond = LOWEST - covered if row.cells < FEW else max(LOWEST - covered, covered - HIGHEST)
    told_error = stdev(each.told for each in seen) / math.sqrt(len(seen))
    missed = beyond > CHANCE * error or told - FALSE > CHANCE * told_error
    print(
        f"{row.design:10} {row.cells:5} {repeats:>7}  {sd.replace('%', ''):>11}  {100 * row.start_sd:10.0f}"
        f"  {100 * row.drift:7.1f}  {100 * covered:5.1f} ± {100 * error:.1f}   {100 * told:9.1f}"
        f"{'  MISSED' if missed else ''}"
    )
    return missed


def ranges(rows: list[Row], found: list[list[Seen]]) -> None:
    """Print the least and the most of each design, cells and repeats, over all scatters."""
    for group, members in itertools.groupby(zip(rows, found, strict=True), key=lambda each: each[0][:3]):
        design, cells, repeats = group
        shares = [(mean(each.covered for each in seen), mean(each.told for each in seen)) for _, seen in members]
        covered, told = ([each[which] for each in shares] for which in (0, 1))
        print(
            f"{design:10} {cells:5} {'3-15' if repeats == UNTIL_PRECISE else str(repeats):>7}  {len(shares):4}"
            f"  {100 * min(covered):4.1f} to {100 * max(covered):4.1f}  {100 * max(told):11.1f}"
        )


def placebos(rows: list[Row], found: list[list[Seen]]) -> Iterator[bool]:
    """Print the A/A check's alarms over all repeats and scatters; True where they are too many."""
    key = {row: (row.design, row.cells, row.start_sd) for row in rows}
    for group in sorted(set(key.values())):
        made = (each.alarm for row, seen in zip(rows, found, strict=True) if key[row] == group for each in seen)
        alarms = [alarm for alarm in made if alarm is not None]
        if not alarms:
            print(f"{group[0]:10} {group[1]:5}  {100 * group[2]:10.0f}  none can be made: no claim")
            continue
        error = math.sqrt(FALSE * (1 - FALSE) / len(alarms))
        missed = mean(alarms) - FALSE > CHANCE * error
        design, cells, start_sd = group
        print(
            f"{design:10} {cells:5}  {100 * start_sd:10.0f}  {len(alarms):4}"
            f"  {100 * mean(alarms):4.1f} ± {100 * error:.1f}{'  MISSED' if missed else ''}"
        )
        yield missed


if __name__ == "__main__":
    main()
