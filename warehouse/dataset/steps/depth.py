"""Depth: rows of prompt processing and token generation by the speed machinery, with mean, sd and peak."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import fmean, median, stdev

from configs.steps.depth import PREFILL
from warehouse.dataset.consolidate.inputs import Group, Raw
from warehouse.dataset.consolidate.rows import Made, Row
from warehouse.dataset.consolidate.speed.rows import speed_rows
from warehouse.dataset.consolidate.speed.starts import TimedStart, in_order, timed_starts
from warehouse.ledger.formulas import phases_of
from warehouse.ledger.timed_tables import DEPTH, DEPTH_WINDOWS

TABLES = DEPTH

MachineMode = tuple[str, str | None, str | None, str | None]  # cell, machine, condition and mode


def rows(group: Group, raw: Raw) -> Made:
    """One row for the prefill and one for the decoding of each depth and concurrency, with their rows of `visits`."""
    measured = {}
    for step in (each for each in group if each.wrote(DEPTH_WINDOWS)):
        parts = [part for run in raw.rows(step, DEPTH_WINDOWS, in_order) for part in phases_of(run)]
        measured[step.identity] = timed_starts(step, raw, parts, [])
    made = speed_rows(group, measured, raw)
    runs = _runs_of([visit for visits in measured.values() for visit in visits])
    return made._replace(results=[each.plus(_beside(each.columns, runs)) for each in made.results])


def _runs_of(visits: Sequence[TimedStart]) -> dict[MachineMode, list[Row]]:
    """The runs behind each figure: of the cell's own starts that were measured to their end, without its controls'."""
    found: dict[MachineMode, list[Row]] = {}
    for visit in visits:
        if visit.is_complete and visit.step.visit.role == "cell":
            found.setdefault((visit.step.cell_key, visit.machine, *visit.shape), []).extend(visit.windows)
    return found


def _beside(row: Row, of_figures: Mapping[MachineMode, Sequence[Row]]) -> Row:
    """What the machinery doesn't know of a depth, and what it takes every rate for that this one isn't.

    A price per output token would leave out what the other part cost; bandwidth is the decoding's alone.
    """
    runs = of_figures.get((row["cell_key"], row.get("machine"), row.get("condition"), row.get("mode")))
    if not runs:
        return {}
    rates = [run["completion_tokens"] / run["wall_s"] for run in runs]
    said = {
        "depth_tokens": runs[0]["depth_tokens"],
        "tok_s_mean": fmean(rates),
        "tok_s_sd": _sd(rates),
        "usd_per_mtok": None,
    }
    if row["mode"] == PREFILL:
        return said | {name: _median(runs, name) for name in ("ttft_ms", "first_chunk_tokens")} | {"mbu": None}
    peaks = [run["peak_tok_s"] for run in runs if run["peak_tok_s"] is not None]
    return said | {
        "tpot_ms": _median(runs, "tpot_ms"),
        "peak_tok_s": fmean(peaks) if peaks else None,
        "peak_tok_s_sd": _sd(peaks),
        "peak_window_s": runs[0]["peak_window_s"],
    }


def _sd(values: Sequence[float]) -> float | None:
    return stdev(values) if len(values) > 1 else None


def _median(runs: Sequence[Row], name: str) -> float | None:
    values = [run[name] for run in runs if run[name] is not None]
    return median(values) if values else None
