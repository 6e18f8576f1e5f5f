"""Engine starts: what each measured, their rows of `visits`, and what varies from start to start of a run.

A start that was continued on another machine was measured twice, in part. The windows of the machine that committed are
its figure. Those of the other machine are a row of their own that says so.

Energy is by the cards' own figures, over the windows that have one (those of a fraction of a second have none):

    energy_j_per_token  sum of energy_j / sum of completion tokens, ramp and tail included
    power_w             sum of energy_j / sum of the seconds that it was taken in

The A/A check (column: placebo) is AR against AR, last start over first. Where that reads as a difference, no speedup of
ours counts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import exp, fsum, log
from statistics import fmean, median, stdev
from typing import Any, NamedTuple

import polars as pl

from configs.cell import Cell
from configs.steps.load import OPEN
from warehouse.dataset.consolidate.comparable import timed_differently, unlike_the_first
from warehouse.dataset.consolidate.inputs import STEP, CommittedStep, Identity, Raw, Rows
from warehouse.dataset.consolidate.pairs import pair_columns
from warehouse.dataset.consolidate.rows import (
    ArmKey,
    Judged,
    Machine,
    Row,
    Spent,
    Start,
    judged,
    labels,
    placed,
    provenance,
)
from warehouse.dataset.statistics.proportions import ALPHA, holm
from warehouse.dataset.statistics.starts import (
    Arm,
    Components,
    Estimate,
    StartRates,
    components,
    placebo_interval,
    smallest_seen,
)
from warehouse.ledger.formulas import tokens_and_seconds
from warehouse.ledger.tables import VERDICTS
from warehouse.ledger.verdicts import Reason


def energy_of(windows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The columns of results that say it; nothing where no card reported energy."""
    said = [row["throttle_reasons"] for row in windows if row.get("throttle_reasons") is not None]
    throttled = {"throttle_reasons": sorted({reason for each in said for reason in each})} if said else {}
    known = [row for row in windows if row.get("energy_j") and row.get("power_w")]
    tokens = sum(row["completion_tokens"] for row in known)
    if not tokens:
        return throttled
    joules, seconds = fsum(row["energy_j"] for row in known), fsum(row["energy_j"] / row["power_w"] for row in known)
    return throttled | {"energy_j_per_token": joules / tokens, "power_w": joules / seconds}


ConditionMode = tuple[str, str]  # condition and mode

WITHOUT_RATES = ("stream", OPEN)
"""Modes whose tokens per second say when they were read, or sent for, and not how fast they are made."""

STREAMED = ("ttft_ms", "tpot_ms", "first_chunk_tokens")
"""Of streams; where it is null, a request has no part in the medians."""

FEWEST_STEADY = 2
"""Steady starts that a cell must have before an unsteady one is left out: one alone says nothing about another."""

CUT = Judged("suspect", (Reason.CUT_SHORT,), ("cut short, and measured again on another machine",))
"""What is said of windows that another machine measured again: the node's verdict is on that one's."""


class TimedStart(NamedTuple):
    """One condition of one committed step, as one machine measured it."""

    step: CommittedStep
    shape: ConditionMode
    machine: Machine
    is_complete: bool  # False: another machine did all of it again, and committed
    windows: Rows
    requests: Rows  # by attempt: `by_attempt` of its requests
    verdict: Judged
    place: Row  # provenance of the attempt that committed
    powered: Rows | None = None
    """Windows over which the cards reported their energy, where those are others than `windows`."""
    left_out: bool = False  # of its cell's figure, for which others are enough: `leaving_out_unsteady`

    @property
    def served(self) -> Cell:
        """What the engine served: the cell, or in a control's start its AR twin."""
        planned = self.step.planned
        return planned.control if self.step.visit.role == "control" and planned.control else planned.cell

    @property
    def rates(self) -> StartRates | None:
        """Its rates; None: streamed, sent on a schedule, not measured, or a window without a token (rejected)."""
        counted = tokens_and_seconds(self.windows)
        if self.shape[1] in WITHOUT_RATES or not counted or any(tokens <= 0 for tokens, _ in counted):
            return None
        tokens, seconds = (fsum(each) for each in zip(*counted, strict=True))
        return StartRates(tuple(log(each / s) for each, s in counted), log(tokens / seconds))


def in_order(windows: pl.LazyFrame) -> pl.LazyFrame:
    """Windows by condition, mode and repeat."""
    return windows.sort("condition", "mode", "repeat")


def by_attempt(requests: pl.LazyFrame) -> pl.LazyFrame:
    """Per step, condition, mode and attempt: shape, repeats, what streams show, tokens, and how many were cut off."""
    shape = ("context_tokens", "output_tokens", "concurrency")
    return (
        requests.group_by(*STEP, "condition", "mode", "attempt")
        .agg(
            *(pl.col(name).min() for name in shape),
            pl.col("repeat").unique(),
            pl.col(*STREAMED).drop_nulls(),
            pl.col("prompt_tokens").sum(),
            pl.col("prompt_tokens").count().alias("requests"),
            pl.col("completion_tokens").sum(),
            (pl.col("finish_reason") == "length").sum().alias("cut_off"),
        )
        .sort("condition", "mode", "attempt")
    )


def timed_starts(step: CommittedStep, raw: Raw, windows: Rows, requests: Rows) -> list[TimedStart]:
    """What a step measured, or judged, by condition, mode and machine, from rows `in_order` and `by_attempt`."""
    machines = {row["attempt"]: machine_of(row) for row in placed(step, raw)}
    home, place = machines.get(step.commit.attempt), provenance(step, raw)
    streams = [row for row in requests if row["mode"] == "stream"]
    shapes = {(row["condition"], row["mode"]) for row in (*windows, *streams)}
    shapes |= {(row["condition"], row["mode"]) for row in raw.rows(step, VERDICTS) if row["condition"] and row["mode"]}
    found: list[TimedStart] = []
    for shape in sorted(shapes):
        condition, mode = shape
        measured: dict[str | None, tuple[Rows, Rows]] = {home: ([], [])}
        for kind, rows in enumerate((windows, requests)):
            for row in rows:
                if (row["condition"], row["mode"]) == shape:
                    machine = machines.get(row["attempt"])
                    known = machine if home is not None and machine is not None else home
                    measured.setdefault(known, ([], []))[kind].append(row)
        verdict = judged(step, raw, condition, mode)
        for machine, (timed, asked) in ((each, _of_one_start(*rows)) for each, rows in measured.items()):
            said = _held_to_one_machine(verdict, step, machines, timed or asked) if machine == home else CUT
            found.append(TimedStart(step, shape, machine, machine == home, timed, asked, said, place))
    return found


def leaving_out_unsteady(measured: Mapping[Identity, Sequence[TimedStart]]) -> dict[Identity, list[TimedStart]]:
    """The same starts, with the unsteady ones marked of cells that have `FEWEST_STEADY` others that are ok.

    What counts is how its windows scatter, never how fast they were, and a start with any other finding stays. Its row
    of `visits` keeps its rate and its verdict. Simulated, intervals hold as well as without this rule (docs/log.md).
    """
    arms: dict[tuple[Any, ...], list[TimedStart]] = {}
    for visit in (each for there in measured.values() for each in there if each.is_complete):
        step = visit.step
        arms.setdefault((step.run_id, step.cell_key, step.visit.role, visit.machine, visit.shape), []).append(visit)
    out: set[int] = set()
    for arm in arms.values():
        if sum(each.verdict.verdict == "ok" for each in arm) >= FEWEST_STEADY:
            out |= {id(each) for each in arm if each.verdict.reasons == (Reason.UNSTEADY,)}
    return {
        identity: [visit._replace(left_out=id(visit) in out) for visit in there] for identity, there in measured.items()
    }


def _of_one_start(windows: Rows, requests: Rows) -> tuple[Rows, Rows]:
    """Without what an attempt left of a condition that a later one began again: two starts don't make one figure."""
    repeats = [row["repeat"] for row in windows]
    if len(set(repeats)) == len(repeats):
        return windows, requests
    last = max(row["attempt"] for row in windows)
    kept, sent = ([row for row in rows if row["attempt"] == last] for rows in (windows, requests))
    return kept, sent


def machine_of(place: Row) -> str | None:
    """Which machine a provenance row names: its own word, or host and card; None: it names none."""
    if place.get("machine") or not place.get("host"):
        return place.get("machine")
    return " ".join(filter(None, (place["host"], place.get("gpu_uuid") or place.get("gpu_name"))))


def _held_to_one_machine(verdict: Judged, step: CommittedStep, machines: dict[int, str | None], rows: Rows) -> Judged:
    """Guard: no window of a figure comes from an attempt without a recorded machine, unless it had only that one."""
    tries = {row["attempt"] for row in rows}
    unknown = sorted(number for number in tries if machines.get(number) is None)
    if not unknown or tries == {step.commit.attempt}:
        return verdict
    sentence = (
        f"windows of attempts {sorted(tries)}, committed by {step.commit.attempt}: "
        f"nobody recorded the machine of {unknown}"
    )
    return verdict.worsened("suspect", Reason.MIXED_MACHINES, sentence)


def start_of(visit: TimedStart, spent: Spent) -> Start:
    """Its row of `visits`, with its share of what its commit took; `run.in_place` fills in its place in the order."""
    step, served, rates = visit.step, visit.served, visit.rates
    names = labels(served, step.planned)
    energy = energy_of(visit.windows if visit.powered is None else visit.powered)
    columns = {
        "run_id": step.run_id,
        "cell_key": step.cell_key,
        "served_cell_key": visit.place.get("served_cell_key") or served.cell_key,
        **{name: names[name] for name in ("model", "precision", "technique", "k", "made_up", "engine", "gpu")},
        "step": step.name,
        "condition": visit.shape[0],
        "mode": visit.shape[1],
        "role": step.visit.role,
        "visit": step.visit.number,
        "attempt": max((row["attempt"] for row in (*visit.windows, *visit.requests)), default=step.commit.attempt),
        "machine": visit.machine,
        "complete": visit.is_complete,
        "repeats": repeats_of([visit]),
        "tok_s": None if rates is None else exp(rates.log_rate),
        "repeat_sd": stdev(rates.log_rates) if rates is not None and len(rates.log_rates) > 1 else None,
        **{name: median_of(visit.requests, name) for name in ("ttft_ms", "tpot_ms") if visit.shape[1] == "stream"},
        **{name: energy.get(name) for name in ("energy_j_per_token", "power_w")},
        **spent._asdict(),
        "measured_at": step.commit.committed_at,
    }
    return Start(columns, visit.verdict, rates, served, visit.place, visit.left_out)


def median_of(requests: Rows, name: str) -> float | None:
    """Of all requests, one of `STREAMED`: one burst moves no figure. None: none has a part in it."""
    values = [value for row in requests for value in row[name]]
    return median(values) if values else None


def repeats_of(visits: Sequence[TimedStart]) -> int | None:
    """Repeats of all of them; None: nothing was measured."""
    streamed = (visit.requests for visit in visits if visit.shape[1] == "stream")
    repeats = sum(len({number for row in rows for number in row["repeat"]}) for rows in streamed)
    return repeats + sum(len(visit.windows) for visit in visits if visit.shape[1] != "stream") or None


RunCondition = tuple[str, str, str, str]  # run, step, condition and mode


class Starts(NamedTuple):
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


Arms = dict[tuple[ArmKey, ConditionMode], Starts]


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
    found: dict[tuple[ArmKey, ConditionMode], list[Start]] = {}
    for start in sorted(placed, key=lambda each: int(each.columns["visit"])):
        row = start.columns
        if row["complete"] and start.rates is not None and not start.left_out:
            key = (row["run_id"], row["cell_key"], row["step"], row["role"], row["machine"])
            found.setdefault((key, (row["condition"], row["mode"])), []).append(start)
    return {key: Starts(tuple(arm)) for key, arm in found.items()}


def load_of(key: tuple[ArmKey, ConditionMode]) -> RunCondition:
    """What an arm shares with those that vary from start to start as it does."""
    (run_id, _, step, _, _), shape = key
    return run_id, step, *shape


def components_of(arms: Arms) -> dict[RunCondition, Components]:
    """Per run and condition, from all its trusted arms: cells and controls of every model."""
    found: dict[RunCondition, list[Arm]] = {load_of(key): [] for key in arms}
    for key, visits in arms.items():
        if key[0][-1] is not None and visits.is_ok:
            found[load_of(key)].append(visits.rates)
    return {load: components(rates) for load, rates in found.items()}


MOST_SEEN = 1e6
"""Bound of what is stored of `ratio_detectable`: with one degree of freedom and many checks it has no end."""


def placebo_pairs(arms: Arms, found: Mapping[RunCondition, Components]) -> list[Row]:
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
    made: frozenset[RunCondition]  # where it could be made

    def withholds(self, load: RunCondition) -> Reason | None:
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
