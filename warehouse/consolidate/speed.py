"""Speed rows: tokens per second with its interval, latency, acceptance, bandwidth, and the speedup over AR."""

from __future__ import annotations

from math import fsum
from statistics import fmean, stdev
from typing import NamedTuple

from configs.schema import Gpu
from warehouse.consolidate.frames import Reduced, Rows
from warehouse.consolidate.inputs import CommittedStep
from warehouse.consolidate.rows import (
    NO_BASELINE,
    SPEEDUP_ABOVE_ACCEPTANCE,
    UNDRAFTED_METHODS,
    Judged,
    Row,
    base_row,
    judged,
    verdict_columns,
    verdict_of,
)
from warehouse.price import usd_of
from warehouse.statistics.bootstrap import interval, ratio_interval, resampled_means

ACCEPTANCE_SLACK = 1.05
"""A verification step costs at least one step of AR, so a speedup can't exceed the tokens committed per step; the
slack allows for noise that the interval over few repeats does not see."""

Shape = tuple[str, str]
"""Condition and mode."""


class SpeedRow(NamedTuple):
    """A result row with the resampled means behind its interval; empty for a single repeat."""

    row: Row
    means: list[float]


def speed_rows(step: CommittedStep, reduced: Reduced) -> dict[Shape, SpeedRow]:
    """One row per condition and mode: what was measured, and what was only judged."""
    shapes: dict[Shape, Rows] = {}
    for window in reduced.windows.get(step.identity, ()):
        shapes.setdefault((window["condition"], window["mode"]), []).append(window)
    streams = {(row["condition"], "stream"): row for row in reduced.streams.get(step.identity, ())}
    verdicts = reduced.verdicts.get(step.identity, [])
    named = {(row["condition"], row["mode"]) for row in verdicts if row["condition"] and row["mode"]}
    rows: dict[Shape, SpeedRow] = {}
    for shape in sorted(set(shapes) | set(streams) | named):
        condition, mode = shape
        row = base_row(step, reduced, judged(step, verdicts, condition, mode))
        row |= {"condition": condition, "mode": mode, **_load_shape(shapes.get(shape) or [streams.get(shape, {})])}
        if mode == "stream":
            row |= {name: streams.get(shape, {}).get(name) for name in ("ttft_ms", "tpot_ms", "repeats")}
            rows[shape] = SpeedRow(row, [])
        else:
            rows[shape] = _rates(step, row, shapes.get(shape, []))
    return rows


def _load_shape(rows: Rows) -> Row:
    return {name: rows[0].get(name) for name in ("context_tokens", "output_tokens", "concurrency")}


def _rates(step: CommittedStep, row: Row, windows: Rows) -> SpeedRow:
    """Fill in what windows without streaming say: rates over repeats, acceptance, bandwidth, price of a token."""
    if not windows:
        return SpeedRow(row, [])
    rates = [window["completion_tokens"] / window["wall_s"] for window in windows]
    tok_s, wall_s = fmean(rates), fsum(window["wall_s"] for window in windows)
    row |= {"repeats": len(rates), "tok_s": tok_s, **_characters(windows, wall_s), **_acceptance(step, windows)}
    row["mbu"] = bandwidth_use(step, windows, wall_s)
    if row.get("price_usd_h") is not None:
        row["usd_per_mtok"] = usd_of(row["price_usd_h"], 1e6 / tok_s)
    if len(rates) < 2:
        return SpeedRow(row, [])
    means = resampled_means(rates, "/".join((*step.identity, row["condition"], row["mode"])))
    row["tok_s_lo"], row["tok_s_hi"] = interval(means)
    row["cv"] = stdev(rates) / tok_s
    return SpeedRow(row, means)


def _characters(windows: Rows, wall_s: float) -> Row:
    chars = total(windows, "chars")
    return {"chars_s": None if chars is None else chars / wall_s}


def _acceptance(step: CommittedStep, windows: Rows) -> Row:
    """Acceptance length 1 + accepted / drafts and accepted / drafts by position, over all repeats.

    Null where nothing is drafted: block diffusion commits canvases, no drafts.
    """
    drafts, accepted = total(windows, "engine_drafts"), total(windows, "engine_accepted_tokens")
    if step.planned.cell.technique.method in UNDRAFTED_METHODS or not drafts or accepted is None:
        return {}
    positions = [window["engine_accepted_by_position"] for window in windows]
    if any(counts is None for counts in positions):
        return {"acceptance_length": 1 + accepted / drafts}
    width = max(len(counts) for counts in positions)
    summed = [sum(counts[at] for counts in positions if at < len(counts)) for at in range(width)]
    return {"acceptance_length": 1 + accepted / drafts, "acceptance_by_position": [count / drafts for count in summed]}


def bandwidth_use(step: CommittedStep, windows: Rows, wall_s: float) -> float | None:
    """Achieved over peak memory bandwidth: weight bytes per step x steps per second / bandwidth.

    Weight bytes = active parameters x bytes per parameter; KV cache and draft are left out, so it is a lower bound.
    A step commits one token of its own per sequence besides the accepted ones, so steps = (completion - accepted
    tokens) / concurrency; block diffusion counts its denoising steps. Source: Pope et al., arXiv 2211.05102, section 2.
    """
    cell, gpu = step.planned.cell, step.planned.gpu
    steps = _decoding_steps(cell.technique.method, windows)
    if gpu.bandwidth_gb_s is None or steps is None:
        return None
    bytes_per_step = cell.model.active_params_b * 1e9 * cell.precision.bytes_per_param
    return bytes_per_step * steps / wall_s / _bytes_per_second(gpu)


def _decoding_steps(method: str, windows: Rows) -> float | None:
    concurrency = windows[0]["concurrency"] or 1
    if method == "diffusion":
        denoising = total(windows, "engine_denoising_steps")
        return None if denoising is None else denoising / concurrency
    tokens = total(windows, "completion_tokens")
    accepted = 0 if method == "ar" else total(windows, "engine_accepted_tokens")
    return None if tokens is None or accepted is None else (tokens - accepted) / concurrency


def _bytes_per_second(gpu: Gpu) -> float:
    return (gpu.bandwidth_gb_s or 0.0) * 1e9


def total(windows: Rows, column: str) -> int | None:
    """Sum over windows; none if any of them lacks the figure."""
    values = [window[column] for window in windows]
    return None if any(value is None for value in values) else sum(values)


def add_speedups(step: CommittedStep, rows: dict[Shape, SpeedRow], baseline: dict[Shape, SpeedRow] | None) -> None:
    """Speedups over the AR cell's rows of the same shape, from ok rows only, and the guard that needs both."""
    if step.is_baseline:
        return
    for shape, (row, means) in rows.items():
        if row.get("tok_s") is None:
            continue
        under = (baseline or {}).get(shape)
        if under is None or under.row["verdict"] != "ok" or under.row.get("tok_s") is None:
            note = "no AR cell of this run was measured" if under is None else "the run's AR row is not ok"
            row |= verdict_columns(verdict_of(row).noting(f"{NO_BASELINE}: {note}, so there is no speedup"))
        elif row["verdict"] == "ok":
            row["speedup"] = row["tok_s"] / under.row["tok_s"]
            if means and under.means:
                row["speedup_lo"], row["speedup_hi"] = ratio_interval(means, under.means)
            row |= verdict_columns(_held_to_acceptance(row))


def _held_to_acceptance(row: Row) -> Judged:
    """Guard: the lower end of the speedup may not exceed the acceptance length by more than the slack."""
    verdict, length = verdict_of(row), row.get("acceptance_length")
    speedup = row.get("speedup_lo") or row["speedup"]
    if length is None or speedup <= length * ACCEPTANCE_SLACK:
        return verdict
    sentence = f"speedup of at least {speedup:.2f} with {length:.2f} tokens per verification step: it can't be true"
    return verdict.worsened("suspect", SPEEDUP_ABOVE_ACCEPTANCE, sentence)
