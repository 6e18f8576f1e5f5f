"""What one engine start measured: windows by condition and by machine, and the rows of `visits` that they become.

A visit that was continued on another machine was measured twice, in part. The windows of the machine that committed are
its figure. Those of the other machine are a row of their own that says so.

Energy is by the cards' own figures:

    energy_j_per_token  sum of energy_j / sum of completion tokens
    power_w             sum of energy_j / sum of the seconds that it was taken in

Both over the windows that have an energy: those of a fraction of a second have none. Ramp and tail are in both sums.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import exp, fsum, log
from statistics import median, stdev
from typing import Any, NamedTuple

import polars as pl

from configs.cell import Cell
from configs.steps.load import OPEN
from warehouse.dataset.consolidate.inputs import STEP, CommittedStep, Raw, Rows
from warehouse.dataset.consolidate.rows import Judged, Machine, Row, Spent, Start, judged, made_up, placed, provenance
from warehouse.dataset.statistics.visits import VisitRates
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


Shape = tuple[str, str]  # condition and mode

WITHOUT_RATES = ("stream", OPEN)
"""Modes whose tokens per second say when they were read, or sent for, and not how fast they are made."""

STREAMED = ("ttft_ms", "tpot_ms", "first_chunk_tokens")
"""Of streams; where it is null, a request has no part in the medians."""

CUT = Judged("suspect", (Reason.CUT_SHORT,), ("cut short, and measured again on another machine",))
"""What is said of windows that another machine measured again: the node's verdict is on that one's."""


class Visited(NamedTuple):
    """One condition of one committed step, as one machine measured it."""

    step: CommittedStep
    shape: Shape
    machine: Machine
    is_complete: bool  # False: another machine did all of it again, and committed
    windows: Rows
    requests: Rows  # by attempt: `by_attempt` of its requests
    verdict: Judged
    place: Row  # provenance of the attempt that committed
    powered: Rows | None = None
    """Windows over which the cards reported their energy, where those are others than `windows`."""

    @property
    def served(self) -> Cell:
        """What the engine served: the cell, or in a control's visit its AR twin."""
        planned = self.step.planned
        return planned.control if self.step.visit.role == "control" and planned.control else planned.cell

    @property
    def rates(self) -> VisitRates | None:
        """Its rates; None: streamed, sent on a schedule, not measured, or a window without a token (rejected)."""
        counted = tokens_and_seconds(self.windows)
        if self.shape[1] in WITHOUT_RATES or not counted or any(tokens <= 0 for tokens, _ in counted):
            return None
        tokens, seconds = (fsum(each) for each in zip(*counted, strict=True))
        return VisitRates(tuple(log(each / s) for each, s in counted), log(tokens / seconds))


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


def visited(step: CommittedStep, raw: Raw, windows: Rows, requests: Rows) -> list[Visited]:
    """What a step measured, or judged, by condition, mode and machine, from rows `in_order` and `by_attempt`."""
    machines = {row["attempt"]: machine_of(row) for row in placed(step, raw)}
    home, place = machines.get(step.commit.attempt), provenance(step, raw)
    streams = [row for row in requests if row["mode"] == "stream"]
    shapes = {(row["condition"], row["mode"]) for row in (*windows, *streams)}
    shapes |= {(row["condition"], row["mode"]) for row in raw.rows(step, VERDICTS) if row["condition"] and row["mode"]}
    found: list[Visited] = []
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
            found.append(Visited(step, shape, machine, machine == home, timed, asked, said, place))
    return found


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


def start_of(visit: Visited, spent: Spent) -> Start:
    """Its row of `visits`, with its share of what its commit took; `run.in_place` fills in its place in the order."""
    step, served, rates = visit.step, visit.served, visit.rates
    many = rates is not None and len(rates.log_rates) > 1
    energy = energy_of(visit.windows if visit.powered is None else visit.powered)
    columns = {
        "run_id": step.run_id,
        "cell_key": step.cell_key,
        "served_cell_key": visit.place.get("served_cell_key") or served.cell_key,
        "model": served.model.name,
        "precision": served.precision.name,
        "technique": served.technique.name,
        "k": served.k,
        "made_up": made_up(served),
        "engine": served.engine.name,
        "gpu": step.planned.gpu.name,
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
        "repeat_sd": stdev(rates.log_rates) if rates is not None and many else None,
        **{name: median_of(visit.requests, name) for name in ("ttft_ms", "tpot_ms") if visit.shape[1] == "stream"},
        **{name: energy.get(name) for name in ("energy_j_per_token", "power_w")},
        **spent._asdict(),
        "measured_at": step.commit.committed_at,
    }
    return Start(columns, visit.verdict, rates, served, visit.place)


def median_of(requests: Rows, name: str) -> float | None:
    """Of all requests, one of `STREAMED`: one burst moves no figure. None: none has a part in it."""
    values = [value for row in requests for value in row[name]]
    return median(values) if values else None


def repeats_of(visits: Sequence[Visited]) -> int | None:
    """Repeats of all of them; None: nothing was measured."""
    streamed = (visit.requests for visit in visits if visit.shape[1] == "stream")
    repeats = sum(len({number for row in rows for number in row["repeat"]}) for rows in streamed)
    return repeats + sum(len(visit.windows) for visit in visits if visit.shape[1] != "stream") or None
