"""Depth: prompt processing (pp) and token generation (tg) at context depths, over streams of fixed length.

Units and formulas, one request at a time (of several, see below):
    pp tok/s  all tokens of the prompt, depth included, over seconds from sending it to its first answer token.
    tg tok/s  output tokens behind the first chunk over seconds from the first chunk to the last.
    peak      most of those tokens in any window of `peak_window_s`, over its length. Tokens of a chunk count as made
              evenly since the chunk before. None where all came within less than a window.
    mean, sd  over runs, of all visits; sd with n - 1.

A run sends `concurrency` requests together and ends with the last of them: pp is the tokens of all prompts over seconds
from the first sending to the last first token; tg the later tokens of all over seconds from the first first token to
the last token. So with several in flight a tg holds the prefills of those that were later.

Source: llama-benchy, `results.py` and `client.py` (github.com/eugr/llama-benchy, 0.3 to 0.4), after llama.cpp's
llama-bench. The same: the formulas above, pp over depth and prompt together (6144 tokens at 835.68 tok/s take the 7353
ms of `pp2048 @ d4096` in docs/sources.md: mtp-spark), batches, a warm-up run, a window of 1 s. What differs:
    latency   it takes the mean of three GET /models off the time to the first chunk. We take nothing off: it is what
              another request did. `door_ms` has it (there 3 ms of 2361, 0.1 %).
    first     it times pp to the first chunk of any kind, which may be the role's, without a token.
    tg        before 0.4 it divided all tokens but one by the time to the last byte. Where the first chunk has several
              tokens, as with a draft, that is too fast.
    peak      it counts whole tokens, both ends of the window included: 12.00 where one token takes 87.5 ms. Ours is
              between chunks, so a steady stream's peak is its rate.
    sd        it divides by n (numpy's default), which of three runs is 0.82 of ours.
    length    it sends text that its own tokenizer cut, at any offset of one book, plus a template that it may ignore,
              and generates up to tg tokens. Ours has exactly the length by the served model's tokenizer and template,
              and every answer exactly tg tokens (`ignore_eos`); anything else is a finding.
    depth     it puts the depth into the system message, since it can ask for the prompt behind a cached depth. We never
              do: with the prefix cache off, which a guard proves, all of it is one user message of real prose.
    prompts   drawn at random, other ones for each run of the tool. Ours are the same for every cell.
    failures  it leaves failed requests out and ends with 0. Here they reject the run.

The house's own tokens per second are never streamed (`throughput`). These are, because pp and tg are parts of one
request; so they have modes of their own, `prefill` and `decode`, and are told beside the others, not among them.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from configs.steps.depth import DECODE, DepthShape, DepthStep
from configs.steps.smoke import OUTPUT_TOKENS
from tasks.context import Progress, StepContext
from tasks.guards.finding import Finding, Judgement
from tasks.timing.condition_verdict import smoke_findings
from tasks.timing.depth_runs import batch, measured_run, request_columns, warm_up
from tasks.timing.depth_verdict import judge_depth
from tasks.timing.finished import finished
from tasks.timing.repeats import windows_wanted
from tasks.timing.timed import timed, with_failures
from warehouse.depths.phases import phases_of
from warehouse.statistics.windows import rate_of
from warehouse.steps.depth import DEPTH_REQUESTS, DEPTH_WINDOWS, MODE

Row = dict[str, Any]

RUN = ("condition", "repeat", "attempt")
"""What identifies a run, and ties requests to it."""


async def measure(ctx: StepContext, spec: DepthStep) -> list[Judgement]:
    """Measure every depth; rows go to `depth_requests` and `depth_windows`, one part of each per run."""
    whole = [(each.name, partial(_is_whole, spec, each)) for each in spec.shapes()]
    windows, requests = await finished(ctx, DEPTH_WINDOWS, DEPTH_REQUESTS, RUN, whole)
    for shape in spec.shapes():
        if _next_run(spec, shape, windows) is None:
            continue
        beside = await warm_up(ctx, spec, shape)
        while (repeat := _next_run(spec, shape, windows)) is not None:
            window, rows = await measured_run(ctx, spec, shape, repeat)
            window, beside = with_failures(window, beside), []
            await ctx.write(DEPTH_REQUESTS, rows)
            await ctx.write(DEPTH_WINDOWS, [window])  # behind its requests: it says that they are all there
            windows.append(window)
            requests += rows
            ctx.tell(_progress(spec, shape, windows))
    return [
        said
        for shape in spec.shapes()
        for said in judge_depth(
            ctx.cell, ctx.planned.gpu, shape, _of(shape, windows), _of(shape, requests), spec.repeats.within
        )
    ]


def _of(shape: DepthShape, rows: Sequence[Row]) -> list[Row]:
    return [row for row in rows if row["condition"] == shape.name]


def _is_whole(spec: DepthStep, shape: DepthShape, windows: Sequence[Row]) -> bool:
    return _next_run(spec, shape, windows) is None


def _next_run(spec: DepthStep, shape: DepthShape, windows: Sequence[Row]) -> int | None:
    """The next run of a depth, from 0; None: it is done."""
    runs = _of(shape, windows)
    return len(runs) if len(runs) < windows_wanted(spec.repeats, _timed_parts(runs)) else None


def _timed_parts(runs: Sequence[Row]) -> list[Row]:
    """Of each run the part whose pace settles how often it is repeated: the decoding, if it has one."""
    return [phases_of(run)[-1] for run in runs if phases_of(run)]


def _progress(spec: DepthStep, shape: DepthShape, windows: Sequence[Row]) -> Progress:
    """What the last run showed."""
    runs = _of(shape, windows)
    rates = {part["mode"]: rate_of([part]) for part in phases_of(runs[-1])}
    said = ", ".join(f"{mode} {rate:.0f} tok/s" for mode, rate in rates.items())
    expected = sum(windows_wanted(spec.repeats, _timed_parts(_of(each, windows))) for each in spec.shapes())
    again = f", measured {runs[-1]['tries']} times" if runs[-1]["tries"] > 1 else ""
    line = f"{shape.name} run {len(runs)} of {spec.repeats}: {said}{again}"
    return Progress(100 * len(windows) / expected, line, rates.get(DECODE))


async def smoke(ctx: StepContext, spec: DepthStep, items: int) -> list[Finding | None]:
    """A few short answers at the first depth, one at a time."""
    shape = next(spec.shapes())._replace(concurrency=1)
    asked_tokens = min(OUTPUT_TOKENS, shape.tg_tokens)
    asked = await batch(ctx, spec.prompts, shape, "smoke", asked_tokens, items)
    load = await timed(
        ctx,
        [each.ready for each in asked],
        1,
        lambda ended, _: ctx.tell(Progress(100 * ended / items, f"generation {ended}/{items}")),
    )
    load.answered.require_all()
    same = {"condition": "smoke", "mode": MODE, "concurrency": 1, "repeat": 0, "depth_tokens": shape.depth_tokens,
            "context_tokens": shape.context_tokens, "output_tokens": asked_tokens}  # fmt: skip
    rows = [same | each for each in request_columns(load, asked)]
    await ctx.write(DEPTH_REQUESTS, rows)
    return smoke_findings(ctx.cell, asked_tokens, rows, load.counted)
