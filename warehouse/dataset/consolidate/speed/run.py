"""All starts of the runs that are built: their places in each machine's order, and what varies from start to start.

The A/A check (column: placebo) is AR against AR, last start over first. Where that reads as a difference, no speedup of
ours counts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import exp, log
from statistics import fmean
from typing import Any, NamedTuple

from configs.cell import Cell
from warehouse.dataset.consolidate.comparable import timed_differently, unlike_the_first
from warehouse.dataset.consolidate.pairs import pair_columns
from warehouse.dataset.consolidate.rows import ArmKey, Row, Start
from warehouse.dataset.consolidate.speed.visits import Shape
from warehouse.dataset.statistics.proportions import ALPHA, holm
from warehouse.dataset.statistics.visits import Arm, Components, Estimate, components, placebo_interval, smallest_seen
from warehouse.ledger.verdicts import Reason

Load = tuple[str, str, str, str]  # run, step, condition and mode


class Visits(NamedTuple):
    """Starts of one thing on one machine under one condition, in their order."""

    starts: tuple[Start, ...]

    @property
    def rates(self) -> Arm:
        """Theirs, placed in the machine's order."""
        return tuple(start.rates for start in self.starts if start.rates is not None)

    @property
    def served(self) -> Cell:
        """What was started."""
        return self.starts[0].served

    @property
    def served_cell_key(self) -> str:
        """The key of what was started; of a control not its cell's."""
        return str(self.starts[0].columns["served_cell_key"])

    @property
    def tok_s(self) -> float:
        """Geometric mean of their rates, tokens per second."""
        return exp(fmean(visit.log_rate for visit in self.rates))

    @property
    def energy_j_per_token(self) -> float | None:
        """Mean over the starts for which a card reported any; None: for none."""
        told = [start.columns["energy_j_per_token"] for start in self.starts]
        known = [energy for energy in told if energy is not None]
        return fmean(known) if known else None

    @property
    def places(self) -> list[Row]:
        """Provenance of each."""
        return [start.place for start in self.starts]

    @property
    def is_ok(self) -> bool:
        """Whether every start is ok, and all are of the same engine, timed by the same client."""
        if unlike_the_first(self.places) or timed_differently(self.places) is not None:
            return False
        return all(start.judged.verdict == "ok" for start in self.starts)


Arms = dict[tuple[ArmKey, Shape], Visits]


def in_place(starts: Sequence[Start]) -> list[Start]:
    """The starts with their rank by time among all of their machine, from 1; null for one that is alone there."""
    times: dict[tuple[Any, ...], set[tuple[str, ...]]] = {}
    for each in starts:
        if each.columns["complete"] and each.columns["machine"] is not None:
            times.setdefault(_machine_of(each), set()).add(_moment_of(each))
    ranks = {
        (machine, moment): float(at)
        for machine, moments in times.items()
        for at, moment in enumerate(sorted(moments), 1)
        if len(moments) > 1
    }
    placed = []
    for each in starts:
        position = ranks.get((_machine_of(each), _moment_of(each))) if each.columns["complete"] else None
        rates = None if each.rates is None else each.rates._replace(position=position)
        placed.append(each._replace(columns=each.columns | {"position": position}, rates=rates))
    return placed


def _machine_of(start: Start) -> tuple[Any, ...]:
    return tuple(start.columns[name] for name in ("run_id", "step", "machine"))


def _moment_of(start: Start) -> tuple[str, ...]:
    row = start.columns
    return row["measured_at"], row["cell_key"], row["role"], f"{row['visit']:03d}"


def arms_of(placed: Sequence[Start]) -> Arms:
    """Starts that were measured to the end, by what they are starts of."""
    found: dict[tuple[ArmKey, Shape], list[Start]] = {}
    for start in sorted(placed, key=lambda each: int(each.columns["visit"])):
        row = start.columns
        if row["complete"] and start.rates is not None:
            key = (row["run_id"], row["cell_key"], row["step"], row["role"], row["machine"])
            found.setdefault((key, (row["condition"], row["mode"])), []).append(start)
    return {key: Visits(tuple(arm)) for key, arm in found.items()}


def load_of(key: tuple[ArmKey, Shape]) -> Load:
    """What an arm shares with those that vary from start to start as it does."""
    (run_id, _, step, _, _), shape = key
    return run_id, step, *shape


def components_of(arms: Arms) -> dict[Load, Components]:
    """Per run and condition, from all its trusted arms: cells and controls of every model."""
    found: dict[Load, list[Arm]] = {load_of(key): [] for key in arms}
    for key, visits in arms.items():
        if key[0][-1] is not None and visits.is_ok:
            found[load_of(key)].append(visits.rates)
    return {load: components(rates) for load, rates in found.items()}


MOST_SEEN = 1e6
"""Bound of what is stored of `ratio_detectable`: with one degree of freedom and many checks it has no end."""


def placebo_pairs(arms: Arms, found: Mapping[Load, Components]) -> list[Row]:
    """One pair per trusted AR arm of several starts and condition; p values are corrected for all of the same run."""
    runs: dict[str, list[tuple[Row, Estimate]]] = {}
    for key, visits in arms.items():
        if key[0][-1] is None or not (visits.served.technique.is_baseline and visits.is_ok and len(visits.rates) > 1):
            continue
        varies = found[load_of(key)]
        estimate = placebo_interval(visits.rates, varies)
        if estimate is None:
            continue
        before, after = visits.starts[0].columns, visits.starts[-1].columns
        pair = pair_columns(after, after["served_cell_key"], "placebo") | {
            "condition": after["condition"],
            "mode": after["mode"],
            "metric": "tok_s",
            "n": after["repeats"],
            "baseline_value": before["tok_s"],
            "value": after["tok_s"],
            "machine": after["machine"],
            "visits": 1,
            "baseline_visits": 1,
            "drift": varies.drift_share,
            "verdict": "ok",
            "reasons": [],
        }
        runs.setdefault(after["run_id"], []).append((pair, estimate))
    return [pair for checks in runs.values() for pair in among_placebos(checks)]


def among_placebos(checks: Sequence[tuple[Row, Estimate]]) -> list[Row]:
    """The A/A checks of one run with what was seen and their final verdict, each as one of all of them."""
    done: list[Row] = []
    corrected = holm([estimate.p for _, estimate in checks])
    for (pair, estimate), p in zip(checks, corrected, strict=True):
        seen = smallest_seen(estimate, len(checks))
        ratio, low, high = (exp(each) for each in (estimate.log, estimate.lo, estimate.hi))
        wording = (
            f"AR against AR, last start over first: {ratio:.2f} x [{low:.2f}, {high:.2f}], p = {p:.2g} as one of "
            f"{len(checks)}: {'a difference where there is none' if p < ALPHA else 'no difference seen'}"
        )
        done.append(
            pair
            | {
                "ratio": ratio,
                "ratio_lo": low,
                "ratio_hi": high,
                "ratio_p": estimate.p,
                "ratio_detectable": MOST_SEEN if seen > log(MOST_SEEN) else exp(seen),
                "ratio_p_holm": p,
                "conclusion": "differs" if p < ALPHA else "inconclusive",
                "wording": wording,
            }
        )
    return done


class Placebos(NamedTuple):
    """Which claims AR against AR allows."""

    failed: frozenset[str]  # runs in which it read as a difference
    made: frozenset[Load]  # where it could be made

    def withholds(self, load: Load) -> Reason | None:
        """Why no speed under this condition is a claim; None: it may be one."""
        if load[0] in self.failed:
            return Reason.PLACEBO_FAILED
        return None if load in self.made else Reason.NO_PLACEBO


def placebos_of(pairs: Sequence[Row]) -> Placebos:
    """What `placebo_pairs` say together."""
    return Placebos(
        frozenset(pair["run_id"] for pair in pairs if pair["conclusion"] == "differs"),
        frozenset((pair["run_id"], pair["step"], pair["condition"], pair["mode"]) for pair in pairs),
    )
