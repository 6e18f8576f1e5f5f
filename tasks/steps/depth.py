"""Depth: prompt processing (pp) and token generation (tg) at context depths, over streams of fixed length.

Units and formulas, one request at a time (of several, see below):
    pp:       tok/s, all tokens of the prompt, depth included, over seconds from sending it to its first answer token.
    tg:       tok/s, output tokens behind the first chunk over seconds from the first chunk to the last.
    peak:     most of those tokens in any window of `peak_window_s`, over its length. Tokens of a chunk count as made
              evenly since the chunk before. None where all came within less than a window.
    mean, sd: over runs, of all starts; sd with n - 1.

A run sends `concurrency` requests together and ends with the last of them. Its pp is the tokens of all prompts over
seconds from the first sending to the last first token. Its tg is the later tokens of all over seconds from the first
first token to the last token. So with several in flight a tg includes the prefills of those that were later.

Source: llama-benchy, `results.py` and `client.py` (github.com/eugr/llama-benchy, 0.3 to 0.4), after llama.cpp's
llama-bench. The same are the formulas above, batches, a warm-up run, a window of 1 s, and pp over depth and prompt
together. (6144 tokens at 835.68 tok/s take the 7353 ms of `pp2048 @ d4096` in docs/sources.md: mtp-spark.)

What differs:
    latency:  it takes the mean of three GET /models off the time to the first chunk. We take nothing off: it is what
              another request did. `door_ms` has it (there 3 ms of 2361, 0.1 %).
    first:    it times pp to the first chunk of any kind, which may be the role's, without a token.
    tg:       before 0.4 it divided all tokens but one by the time to the last byte. Where the first chunk has several
              tokens, as with a draft, that is too fast.
    peak:     it counts whole tokens, both ends of the window included: 12.00 where one token takes 87.5 ms. Ours is
              between chunks, so a steady stream's peak is its rate.
    sd:       it divides by n (numpy's default), which of three runs is 0.82 of ours.
    length:   it sends text that its own tokenizer cut, at any offset of one book, plus a template that it may ignore.
              It generates up to tg tokens. Ours has exactly the length by the served model's tokenizer and template,
              and every answer exactly tg tokens (`ignore_eos`). Anything else is a finding.
    depth:    it puts the depth into the system message, since it can ask for the prompt behind a cached depth. We never
              do. With the prefix cache off, which a guard proves, all of it is one user message of real prose.
    prompts:  drawn at random, other ones for each run of the tool. Ours are the same for every cell.
    failures: it ignores failed requests and ends with 0. Here they reject the run.

The house's own tokens per second are never streamed (`throughput`). These are, because pp and tg are parts of one
request. So they have modes of their own, `prefill` and `decode`, and are reported next to the others, not among them.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_right
from collections.abc import Sequence
from functools import partial
from statistics import fmean, median
from typing import NamedTuple

from configs.cell import Cell, Gpu
from configs.steps.depth import DECODE, PREFILL, DepthShape, DepthStep
from configs.steps.smoke import OUTPUT_TOKENS
from tasks.client import Ready, StreamReply
from tasks.context import StepContext
from tasks.guards.speed import impossible_prefill
from tasks.guards.steadiness import is_starved
from tasks.timing.conditions import TimedCondition, Window, measure_conditions, tried, window_of, windows_wanted
from tasks.timing.loops import paces_of
from tasks.timing.timed import Asked, OwnPrompts, Row, Timed, ready_of
from tasks.timing.verdict import Paces, Work, verdict
from warehouse.ledger.formulas import phases_of, rate_of
from warehouse.ledger.timed_tables import DEPTH
from warehouse.ledger.verdicts import Finding, Judgement

MODE = "stream"  # of raw rows; the two rows of the dataset that a depth becomes are `prefill` and `decode`
DOOR_TRIES = 3  # as many as llama-benchy asks before it starts; their mean is its `latency mode: api`


async def measure(ctx: StepContext, spec: DepthStep) -> list[Judgement]:
    """Measure every depth; rows go to `depth_requests` and `depth_windows`, one part of each per run."""
    shapes, within = [*spec.shapes()], spec.repeats.within
    measured = await measure_conditions(ctx, DEPTH, [_Depth(ctx, spec, each) for each in shapes])
    judged = zip(shapes, measured, strict=True)
    return [said for each, rows in judged for said in judge_depth(ctx.cell, ctx.planned.gpu, each, *rows, within)]


class _Depth(TimedCondition):
    """One depth at one concurrency: runs, each a batch of streams that are sent together."""

    def __init__(self, ctx: StepContext, spec: DepthStep, shape: DepthShape) -> None:
        super().__init__(ctx, shape.name, shape.concurrency, spec.warmup)
        self._spec, self._shape = spec, shape

    def next_window(self, windows: Sequence[Row]) -> int | None:
        done, wanted = self.size(windows)
        return done if done < wanted else None

    def size(self, windows: Sequence[Row]) -> tuple[int, int]:
        """In runs: the part whose pace settles how many is the decoding, if there is one."""
        parts = [phases_of(run)[-1] for run in windows if phases_of(run)]
        return len(windows), windows_wanted(self._spec.repeats, parts)

    async def warming(self, number: int) -> list[Ready]:
        return ready_of(await _batch(self.ctx, self._spec, self._shape, f"warm-up-{number}", self.at_once))

    async def first_tokens(self, window: str, number: int) -> list[Ready]:
        return ready_of(await _batch(self.ctx, self._spec, self._shape, window, number, cut=1))

    async def measure(self, wanted: int) -> Window:
        once = partial(self._run, wanted)
        return await self.until_kept_up(once, f"run-{wanted}", lambda row: any(map(is_starved, phases_of(row))))

    async def _run(self, repeat: int, name: str) -> Window:
        asked = await _batch(self.ctx, self._spec, self._shape, name, self.at_once)
        door_ms = await _door_ms(self.ctx)
        window = await window_of(self.ctx, asked, _columns(self._shape) | {"repeat": repeat})
        times = await asyncio.to_thread(_times, window.load, self._spec.peak_window_s)
        return window._replace(row=window.row | times | _medians(window.requests) | {"door_ms": door_ms})

    def line(self, last: Row) -> tuple[str, float | None]:
        rates = {part["mode"]: rate_of([part]) for part in phases_of(last)}
        said = ", ".join(f"{mode} {rate:.0f} tok/s" for mode, rate in rates.items())
        number = f"run {last['repeat'] + 1} of {self._spec.repeats}"
        return f"{self.name} {number}: {said}", rates.get(DECODE)


async def _batch(
    ctx: StepContext, spec: DepthStep, shape: DepthShape, name: str, number: int, cut: int | None = None
) -> list[Asked]:
    """Streamed requests of a shape, for the run of that name."""
    prompts = OwnPrompts(spec.prompts, shape.context_tokens, shape.tg_tokens)
    return await prompts.ask(ctx, ("depth", shape.name, name), number, cut=cut, streams=True)


def _columns(shape: DepthShape) -> Row:
    """What a run's row and those of its requests have in common."""
    return {
        "condition": shape.name,
        "mode": MODE,
        "context_tokens": shape.context_tokens,
        "output_tokens": shape.tg_tokens,
        "concurrency": shape.concurrency,
        "depth_tokens": shape.depth_tokens,
    }


async def _door_ms(ctx: StepContext) -> float:
    """Mean time of a request that needs no model: what the wire and the engine's door take of a first token."""
    clock, taken_s = asyncio.get_running_loop(), []
    for _ in range(DOOR_TRIES):
        begun_s = clock.time()
        await ctx.client.text("/health")
        taken_s.append(clock.time() - begun_s)
    return 1000 * fmean(taken_s)


def _times(load: Timed, peak_window_s: float) -> Row:
    """The run's two parts, on one clock: until the last first token, and from the first of them to the last token."""
    streams = [(span.sent_s, reply) for span, reply in load.answered.each
               if isinstance(reply, StreamReply) and reply.counts]  # fmt: skip
    row: Row = {"prefill_s": None, "decode_s": None, "decode_tokens": None, "peak_tok_s": None,
                "peak_window_s": peak_window_s}  # fmt: skip
    if not streams:
        return row
    firsts = [sent_s + reply.counts[0][0] for sent_s, reply in streams]
    lasts = [sent_s + reply.counts[-1][0] for sent_s, reply in streams]
    later = sum(reply.completion_tokens - reply.first_chunk_tokens for _, reply in streams)
    row["prefill_s"] = max(firsts) - load.begun_s
    if later and max(lasts) > min(firsts):
        row["decode_tokens"], row["decode_s"] = later, max(lasts) - min(firsts)
        row["peak_tok_s"] = peak_tok_s([flow(sent_s, reply.counts) for sent_s, reply in streams], peak_window_s)
    return row


class Flow(NamedTuple):
    """One stream behind its first chunk: moments in s on any one clock, and tokens made by then, from 0."""

    moments_s: Sequence[float]
    tokens: Sequence[float]

    def made(self, at_s: float) -> float:
        """Tokens until a moment; those of a chunk were made evenly since the chunk before."""
        after = bisect_right(self.moments_s, at_s)
        if after == 0 or after == len(self.moments_s):
            return self.tokens[-1] if after else 0.0
        begin_s, end_s = self.moments_s[after - 1 : after + 1]
        begin, end = self.tokens[after - 1 : after + 1]
        return begin + (end - begin) * (at_s - begin_s) / (end_s - begin_s)


def flow(sent_s: float, counts: Sequence[tuple[float, int]]) -> Flow:
    """A stream's flow, from when it was sent and its chunks' moments since then and running counts of tokens."""
    return Flow([sent_s + at_s for at_s, _ in counts], [float(tokens - counts[0][1]) for _, tokens in counts])


def peak_tok_s(flows: Sequence[Flow], window_s: float) -> float | None:
    """Most tokens per second, of all streams together, in any window of `window_s` seconds; None: they were shorter.

    Counts rise in straight lines between chunks, so the fullest window begins or ends where a line does. Tokens that
    came with a first chunk are left out: nobody knows since when they were made.
    """
    edges = {moment for each in flows for moment in each.moments_s}
    begin_s, end_s = min(edges, default=0.0), max(edges, default=0.0)
    last_s = end_s - window_s
    if last_s < begin_s:
        return None
    starts = {start for edge in edges for start in (edge, edge - window_s) if begin_s <= start <= last_s}

    def made(at_s: float) -> float:
        return sum(each.made(at_s) for each in flows)

    return max(made(start + window_s) - made(start) for start in starts) / window_s


def _medians(rows: Sequence[Row]) -> Row:
    """TTFT, TPOT and tokens of the first chunk of a run: those of its requests in the middle."""
    found: Row = {}
    for name in ("ttft_ms", "tpot_ms", "first_chunk_tokens"):
        values = [row[name] for row in rows if row[name] is not None]
        found[name] = median(values) if values else None
    return found


def judge_depth(
    served: Cell, gpu: Gpu, shape: DepthShape, windows: Sequence[Row], requests: Sequence[Row], within: float | None
) -> list[Judgement]:
    """What the guards say about a depth's prefill, and about its decoding, which one canvas of diffusion hasn't.

    Both are parts of the same streams, so they share some checks. Each has its own clock, by which its client was
    starved or not: the part's, or the run's where it has no such part. `windows` and their `requests` are of one engine
    start; `within`: the half-width that the decoding's pace was asked to reach, as a share; None: a fixed number of
    runs.
    """
    work = Work(served, gpu, windows, requests, shape.concurrency, shape.context_tokens, shape.tg_tokens)
    shared = [*work.done(), *work.answers(), work.lumps(), *work.late()]
    said = []
    for mode, name in ((PREFILL, shape.prefill_name), (DECODE, shape.decode_name)):
        parts = [part for window in windows for part in phases_of(window) if part["mode"] == mode]
        if mode == DECODE and not parts and served.technique.denoises:
            continue
        found, paces = [*shared], None
        if parts and mode == PREFILL:
            found.append(impossible_prefill(served, gpu, rate_of(parts)))
            paces = Paces(paces_of(parts), None, "prompt tokens/s")
        elif parts:
            decoding, rates = work._replace(windows=parts), [row["completion_tokens"] / row["wall_s"] for row in parts]
            found += [decoding.too_fast(), decoding.too_slow(fmean(rates)) if shape.concurrency == 1 else None]
            paces = Paces(paces_of(parts), within)
        clocks = [next((part for part in phases_of(run) if part["mode"] == mode), run) for run in windows]
        said.append(verdict(name, mode, found, windows, paces=paces, clocks=clocks))
    return said


async def smoke(ctx: StepContext, spec: DepthStep, items: int) -> list[Finding | None]:
    """A few short answers at the first depth, one at a time."""
    shape = next(spec.shapes())._replace(concurrency=1)
    cut = min(OUTPUT_TOKENS, shape.tg_tokens)
    same = _columns(shape) | {"condition": "smoke", "output_tokens": cut, "repeat": 0}
    rows, counted = await tried(ctx, DEPTH, await _batch(ctx, spec, shape, "smoke", items, cut), same, "generation")
    return Work(ctx.cell, ctx.planned.gpu, [], rows, 1, shape.context_tokens, cut).smoke(counted)
