"""Speed rows: tokens per second with its interval, latency, acceptance, bandwidth, and the speedup over AR."""

from __future__ import annotations

from collections.abc import Mapping
from math import fsum
from statistics import fmean, stdev
from typing import TYPE_CHECKING, NamedTuple

from configs.cell import Gpu, Technique
from warehouse.consolidate.costs import shared, step_seconds, window_seconds
from warehouse.consolidate.inputs import STEP, CommittedStep, Group, Identity, baseline_of
from warehouse.consolidate.pairs import speed_pair
from warehouse.consolidate.rows import Judged, Made, Row, base_row, judged, plain_row, verdict_columns, verdict_of
from warehouse.price import usd_of
from warehouse.statistics.bootstrap import interval, ratio_interval, resampled_means
from warehouse.tables import VERDICTS
from warehouse.verdicts import Reason

if TYPE_CHECKING:  # nodes import this file and have no polars
    import polars as pl

    from warehouse.consolidate.raw import Raw, Rows

ACCEPTANCE_SLACK = 1.05
"""A verification step costs at least one step of AR, so a speedup can't exceed the tokens committed per step; the
slack allows for noise that an interval over few repeats misses."""

Shape = tuple[str, str]
"""Condition and mode."""


class SpeedRow(NamedTuple):
    """A result row and the resampled means behind its interval; no means for a single repeat."""

    row: Row
    means: list[float]


def in_order(windows: pl.LazyFrame) -> pl.LazyFrame:
    """Windows by condition, mode and repeat."""
    return windows.sort("condition", "mode", "repeat")


def stream_medians(requests: pl.LazyFrame) -> pl.LazyFrame:
    """Per step and condition: shape, and medians of TTFT and TPOT in ms (medians: one burst moves no figure)."""
    import polars as pl

    shape = ("context_tokens", "output_tokens", "concurrency")
    return (
        requests.filter(pl.col("mode") == "stream")
        .group_by(*STEP, "condition")
        .agg(
            *(pl.col(name).min() for name in shape),
            pl.col("repeat").n_unique().alias("repeats"),
            pl.col("ttft_ms", "tpot_ms").median(),
        )
        .sort("condition")
    )


def speed_rows(step: CommittedStep, raw: Raw, windows: Rows, medians: Rows) -> dict[Shape, SpeedRow]:
    """One row per condition and mode that was measured, or at least judged.

    Args:
        step: a step with windows.
        raw: holds its verdicts and its provenance.
        windows: its windows, `in_order`.
        medians: its `stream_medians`.
    """
    shapes: dict[Shape, Rows] = {}
    for window in windows:
        shapes.setdefault((window["condition"], window["mode"]), []).append(window)
    streams = {(row["condition"], "stream"): row for row in medians}
    named = {(row["condition"], row["mode"]) for row in raw.rows(step, VERDICTS) if row["condition"] and row["mode"]}
    rows: dict[Shape, SpeedRow] = {}
    order = sorted(set(shapes) | set(streams) | named)
    shares = shared(step_seconds(step, raw), [window_seconds(shapes.get(shape, ())) for shape in order])
    for shape, spent in zip(order, shares, strict=True):
        condition, mode = shape
        row = base_row(step, raw, judged(step, raw, condition, mode), spent)
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

    Null where nothing is drafted: block diffusion commits canvases, not drafts.
    """
    drafts, accepted = total(windows, "engine_drafts"), total(windows, "engine_accepted_tokens")
    if not step.planned.cell.technique.drafts or not drafts or accepted is None:
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
    steps = _decoding_steps(cell.technique, windows)
    if gpu.bandwidth_gb_s is None or steps is None:
        return None
    bytes_per_step = cell.model.active_params_b * 1e9 * cell.precision.bytes_per_param
    return bytes_per_step * steps / wall_s / _bytes_per_second(gpu)


def _decoding_steps(technique: Technique, windows: Rows) -> float | None:
    concurrency = windows[0]["concurrency"] or 1
    if technique.denoises:
        denoising = total(windows, "engine_denoising_steps")
        return None if denoising is None else denoising / concurrency
    tokens = total(windows, "completion_tokens")
    accepted = 0 if technique.is_baseline else total(windows, "engine_accepted_tokens")
    return None if tokens is None or accepted is None else (tokens - accepted) / concurrency


def _bytes_per_second(gpu: Gpu) -> float:
    return (gpu.bandwidth_gb_s or 0.0) * 1e9


def total(windows: Rows, column: str) -> int | None:
    """Sum over windows; None if any of them lacks the figure."""
    values = [window[column] for window in windows]
    return None if any(value is None for value in values) else sum(values)


def rates_and_pairs(group: Group, measured: Mapping[Identity, dict[Shape, SpeedRow]], raw: Raw) -> Made:
    """All rows of a comparison group, with their speedups, and a pair per speedup.

    Args:
        group: steps of one kind that are compared with each other.
        measured: their rows by the step's identity; those that wrote no windows are missing.
        raw: holds verdicts and provenance.
    """
    made = Made([], [])
    for step in group:
        if step.identity not in measured:
            made.results.append(plain_row(step, raw))
            continue
        baseline = baseline_of(step, group)
        under = None if baseline is None else measured.get(baseline.identity)
        ours = measured[step.identity]
        _add_speedups(step, ours, under)
        for shape, (row, _) in ours.items():
            made.results.append(row)
            if under is not None and row.get("speedup") is not None:
                made.pairs.append(speed_pair(row, under[shape].row))
    return made


def _add_speedups(step: CommittedStep, rows: dict[Shape, SpeedRow], baseline: dict[Shape, SpeedRow] | None) -> None:
    """Speedups over the AR cell's rows of the same shape, from ok rows only, and the guard that needs both."""
    if step.is_baseline:
        return
    for shape, (row, means) in rows.items():
        if row.get("tok_s") is None:
            continue
        under = (baseline or {}).get(shape)
        if under is None or under.row["verdict"] != "ok" or under.row.get("tok_s") is None:
            note = "no AR cell of this run was measured" if under is None else "the run's AR row is not ok"
            row |= verdict_columns(verdict_of(row).noting(f"{Reason.NO_BASELINE}: {note}, so there is no speedup"))
        elif row["verdict"] == "ok":
            row["speedup"] = row["tok_s"] / under.row["tok_s"]
            if means and under.means:
                row["speedup_lo"], row["speedup_hi"] = ratio_interval(means, under.means)
            row |= verdict_columns(_held_to_acceptance(row))


def _held_to_acceptance(row: Row) -> Judged:
    """Guard: the lower end of the speedup must not exceed the acceptance length by more than the slack."""
    verdict, length = verdict_of(row), row.get("acceptance_length")
    speedup = row.get("speedup_lo") or row["speedup"]
    if length is None or speedup <= length * ACCEPTANCE_SLACK:
        return verdict
    sentence = f"speedup of at least {speedup:.2f} with {length:.2f} tokens per verification step: it can't be true"
    return verdict.worsened("suspect", Reason.SPEEDUP_ABOVE_ACCEPTANCE, sentence)
