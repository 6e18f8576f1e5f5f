"""One run of a depth: a batch of streams of one shape, timed by the client and counted by the engine, as rows."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from statistics import fmean, median
from typing import Any, NamedTuple

from configs.steps.depth import DepthShape, DepthStep
from tasks.client import Ready, StreamReply
from tasks.context import Progress, StepContext
from tasks.guards.steadiness import is_starved
from tasks.prompts import Prompt, prompt_seed
from tasks.timing.peak import flow, peak_tok_s
from tasks.timing.timed import Timed, meet_lengths, timed, untimed
from tasks.timing.tries import measured
from tasks.timing.windows import request_row
from warehouse.depths.phases import phases_of
from warehouse.steps.depth import MODE

Row = dict[str, Any]

DOOR_TRIES = 3
"""As many as llama-benchy asks before it starts; their mean is its `latency mode: api`."""


class Asked(NamedTuple):
    """One request: its name, its prompt, and the same encoded."""

    request_id: str
    prompt: Prompt
    ready: Ready


async def warm_up(ctx: StepContext, spec: DepthStep, shape: DepthShape) -> list[str]:
    """Send untimed runs of the same shape, with prompts of their own, and some more for their lengths' sake.

    Returns:
        A sentence for each that failed.
    """

    async def first_tokens(name: str, number: int) -> list[Ready]:
        return [each.ready for each in await batch(ctx, spec.prompts, shape, name, 1, number)]

    failures: list[str] = []
    for number in range(spec.warmup):
        ctx.tell(Progress(0, f"{shape.name}: warm-up {number + 1}/{spec.warmup}"))
        asked = await batch(ctx, spec.prompts, shape, f"warm-up-{number}", shape.tg_tokens)
        failures += (await untimed(ctx, "warm-up", [each.ready for each in asked], shape.concurrency)).failures
    if spec.warmup:
        failures += await meet_lengths(ctx, first_tokens)
    return failures


async def measured_run(ctx: StepContext, spec: DepthStep, shape: DepthShape, repeat: int) -> tuple[Row, list[Row]]:
    """Measure one run; returns its row of `depth_windows` and its rows of `depth_requests`.

    Each try has prompts of its own.

    Raises:
        AllFailed: in every try.
    """

    async def once(tries: int) -> tuple[Row, list[Row]]:
        name = f"run-{repeat}" if tries == 1 else f"run-{repeat}-try-{tries}"
        asked = await batch(ctx, spec.prompts, shape, name, shape.tg_tokens)
        door_ms = await _door_ms(ctx)
        load = await timed(ctx, [each.ready for each in asked], shape.concurrency)
        # texts take a while to look through: heartbeats go on meanwhile
        window, rows = await asyncio.to_thread(_rows, load, asked, spec, shape)
        return window | {"repeat": repeat, "door_ms": door_ms}, [row | {"repeat": repeat} for row in rows]

    return await measured(once, starved=lambda window: any(map(is_starved, phases_of(window))))


async def batch(
    ctx: StepContext, prompts: str, shape: DepthShape, name: str, output_tokens: int, number: int | None = None
) -> list[Asked]:
    """Streamed requests of a shape, counted by the engine and encoded before any clock starts.

    Args:
        ctx: has prose and client.
        prompts: what they are made of.
        shape: how long, and how many.
        name: of the run; prompts of two names differ.
        output_tokens: that each must return.
        number: of requests; None: the shape's concurrency.
    """
    made = []
    for index in range(shape.concurrency if number is None else number):
        seed = prompt_seed("depth", shape.name, name, index)
        prompt = await ctx.prompt(prompts, seed, shape.context_tokens, shape.tg_tokens)
        body = ctx.client.request(prompt, output_tokens, fixed=True)
        made.append(Asked(f"{shape.name}/{name}/{index}", prompt, ctx.client.ready(body, streams=True)))
    return made


async def _door_ms(ctx: StepContext) -> float:
    """Mean time of a request that needs no model: what the wire and the engine's door take of a first token."""
    clock, taken_s = asyncio.get_running_loop(), []
    for _ in range(DOOR_TRIES):
        begun_s = clock.time()
        await ctx.client.text("/health")
        taken_s.append(clock.time() - begun_s)
    return 1000 * fmean(taken_s)


def _rows(load: Timed, asked: Sequence[Asked], spec: DepthStep, shape: DepthShape) -> tuple[Row, list[Row]]:
    """The run's row, but for what a try decides, and its requests'."""
    same = {
        "condition": shape.name,
        "mode": MODE,
        "context_tokens": shape.context_tokens,
        "output_tokens": shape.tg_tokens,
        "concurrency": shape.concurrency,
        "depth_tokens": shape.depth_tokens,
    }
    rows = [same | row for row in request_columns(load, asked)]
    return same | load.columns() | _times(load, spec.peak_window_s) | _medians(rows), rows


def request_columns(load: Timed, asked: Sequence[Asked]) -> list[Row]:
    """What the answers bring to `depth_requests`; `sent_s` from the first sending."""
    answered = load.answered
    return [
        request_row(reply)
        | {
            "request_id": asked[place].request_id,
            "prompt_chars": len(asked[place].prompt.text),
            "sent_s": span.sent_s - load.begun_s,
        }
        for place, (span, reply) in zip(answered.places, answered.each, strict=True)
    ]


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


def _medians(rows: Sequence[Row]) -> Row:
    """TTFT, TPOT and tokens of the first chunk of a run: those of its requests in the middle."""
    found: Row = {}
    for name in ("ttft_ms", "tpot_ms", "first_chunk_tokens"):
        values = [row[name] for row in rows if row[name] is not None]
        found[name] = median(values) if values else None
    return found
