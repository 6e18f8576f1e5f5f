"""What the guards say about one depth: its prefill and its decoding, which are two rows of the dataset."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean

from configs.cell import Cell, Gpu
from configs.steps.depth import DECODE, PREFILL, DepthShape
from configs.steps.throughput import Condition
from tasks.guards.finding import Finding, Judgement, judge
from tasks.guards.speed import (
    ceiling_tok_s,
    floor_tok_s,
    held_back,
    impossible_prefill,
    impossible_speed,
    late_first_token,
    step_bytes,
    streamed_in_lumps,
    tokens_per_step,
    too_slow,
)
from tasks.guards.steadiness import client_limited, client_starved, unexplained, unsteady
from tasks.steady import paces_of
from tasks.timing.condition_verdict import counted_in, work_findings
from warehouse.depths.phases import phases_of
from warehouse.parts import Row
from warehouse.statistics.windows import rate_of


def judge_depth(
    served: Cell, gpu: Gpu, shape: DepthShape, windows: Sequence[Row], requests: Sequence[Row], within: float | None
) -> list[Judgement]:
    """What the guards say about a depth's prefill, and about its decoding, which one canvas of diffusion hasn't.

    Both are parts of the same streams: that the work was done, that its tokens came as they were made and that nothing
    was cached is said of both. Each has its own clock, by which its client was starved or not.

    Args:
        served: the cell that the engine serves: in a control's visit the control.
        gpu: as planned.
        shape: of the depth.
        windows: rows of `depth_windows`, of one visit on one machine.
        requests: rows of `depth_requests` that belong to them.
        within: the half-width that the decoding's pace was asked to reach, as a share; None: a fixed number of runs.
    """
    parts = [part for window in windows for part in phases_of(window)]
    prefill, decode = ([part for part in parts if part["mode"] == mode] for mode in (PREFILL, DECODE))
    shared = [*_streamed(served, shape, windows, requests), client_limited(windows)]
    said = [_judged(shape.prefill_name, PREFILL, [*shared, *_prefill(served, gpu, prefill)], windows)]
    if decode or not served.technique.denoises:
        found = [*shared, *_decode(served, gpu, shape, decode, requests, within)]
        said.append(_judged(shape.decode_name, DECODE, found, windows))
    return said


def _judged(name: str, mode: str, found: Sequence[Finding | None], windows: Sequence[Row]) -> Judgement:
    """The findings, and whether the client kept up: by the part's clock, or by the run's where it has no such part."""
    clocks = [next((part for part in phases_of(window) if part["mode"] == mode), window) for window in windows]
    starved = client_starved(clocks)
    return judge(name, mode, [*unexplained([each for each in found if each is not None], starved), starved])


def _streamed(served: Cell, shape: DepthShape, windows: Sequence[Row], requests: Sequence[Row]) -> list[Finding | None]:
    """Was the work done, and streamed as it was done? An engine that holds tokens back has no first one, either."""
    asked = Condition.model_validate(
        {
            "name": shape.name,
            "context_tokens": shape.context_tokens,
            "output_tokens": shape.tg_tokens,
            "concurrency": shape.concurrency,
        }
    )
    chunks = [(row["completion_tokens"], row["largest_chunk_tokens"]) for row in requests]
    lumps = None if served.technique.denoises else streamed_in_lumps(chunks, (served.k or 0) + 1)
    work = work_findings(served, asked, windows, requests, shape.tg_tokens)
    return [*work, lumps, late_first_token(served, requests), held_back(requests)]


def _prefill(served: Cell, gpu: Gpu, parts: Sequence[Row]) -> list[Finding | None]:
    if not parts:
        return []
    return [impossible_prefill(served, gpu, rate_of(parts)), unsteady(paces_of(parts), None, "prompt tokens/s")]


def _decode(
    served: Cell,
    gpu: Gpu,
    shape: DepthShape,
    parts: Sequence[Row],
    requests: Sequence[Row],
    within: float | None,
) -> list[Finding | None]:
    """Tokens behind the first one come of steps that each read weights and cache, and commit one and those accepted."""
    if not parts:
        return []
    shortest = min((row["prompt_tokens"] or 0 for row in requests), default=0)
    bytes_read = step_bytes(served, shortest, shape.tg_tokens, shape.concurrency)
    per_step = tokens_per_step(served, sum(part["completion_tokens"] for part in parts), counted_in(parts))
    rates = [part["completion_tokens"] / part["wall_s"] for part in parts]
    alone = shape.concurrency == 1
    return [
        impossible_speed(rate_of(parts), ceiling_tok_s(served, gpu, bytes_read, per_step, shape.concurrency)),
        too_slow(fmean(rates), floor_tok_s(served, gpu, bytes_read)) if alone else None,
        unsteady(paces_of(parts), within),
    ]
