"""One window: a condition's requests, timed by the client and counted by the engine, as rows of two tables."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from statistics import fmean
from typing import Any

from configs.steps.throughput import PREFILL_TRIES, Condition
from tasks.client import Reply, StreamReply
from tasks.context import Progress, StepContext
from tasks.guards.steadiness import is_starved
from tasks.guards.text_measures import text_columns
from tasks.meters import Counters
from tasks.prompts import prompt_seed
from tasks.steady import steady_state
from tasks.timing.client_watch import ClientWatch
from warehouse.statistics.windows import Span

MOST_TRIES = 3
"""How often a window is measured whose client was starved; what is still starved then is kept, and suspect."""


async def warm_up(ctx: StepContext, prompts: str, condition: Condition) -> float | None:
    """Send untimed requests of the same shape, with prompts of their own.

    Returns:
        Mean log-probability of their tokens, in nats: timed requests can't ask for it. None: the engine sent none.
    """
    said: list[float] = []
    for number in range(condition.warmup):
        ctx.tell(Progress(0, f"{condition.name}: warm-up {number + 1}/{condition.warmup}"))
        bodies = await _bodies(ctx, prompts, condition, f"warm-up-{number}", condition.concurrency, logprobs="written")
        replies = await asyncio.gather(*map(ctx.client.complete, bodies))
        said += [reply.mean_logprob for reply in replies if reply.mean_logprob is not None]
    return fmean(said) if said else None


async def measured_window(
    ctx: StepContext, prompts: str, condition: Condition, mode: str, repeat: int
) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Measure one repeat; returns its row of `windows` and its rows of `requests`.

    A window in which the client was starved is measured again, with prompts of its own: the last try is kept.
    """
    for tries in range(1, MOST_TRIES + 1):
        window, rows = await _window(ctx, prompts, condition, mode, repeat, tries)
        if not is_starved(window):
            break
    return window, rows


async def _window(
    ctx: StepContext, prompts: str, condition: Condition, mode: str, repeat: int, tries: int
) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    is_stream, concurrency = mode == "stream", condition.concurrency
    number = condition.streams if is_stream else max(condition.requests, concurrency)
    name = f"{mode}-{repeat}" if tries == 1 else f"{mode}-{repeat}-try-{tries}"
    bodies = await _bodies(ctx, prompts, condition, name, number, token_ids=not is_stream)
    prefill_s = await _prefill(ctx, prompts, condition, name) if is_stream else None
    send = ctx.client.stream if is_stream else ctx.client.complete
    clock = asyncio.get_running_loop().time
    before = await ctx.counters()
    async with ClientWatch() as watch:
        started_s = clock()
        answers = await _in_flight(send, bodies, concurrency)
        wall_s = clock() - started_s
    counted = await ctx.counters_after(before, number)
    shape = {
        "condition": condition.name,
        "mode": mode,
        "context_tokens": condition.context_tokens,
        "output_tokens": condition.output_tokens,
        "concurrency": concurrency,
        "repeat": repeat,
    }
    replies = [reply for _, reply in answers]
    rows = [
        {
            **shape,
            **request_row(reply),
            "request_id": f"{condition.name}/{name}/{index}",
            "prompt_chars": len(body["messages"][-1]["content"]),
        }
        for index, (body, reply) in enumerate(zip(bodies, replies, strict=True))
    ]
    first_ended_s = min(sent_s + reply.wall_s for sent_s, reply in answers)
    for row, (sent_s, _) in zip(rows, answers, strict=True):
        if is_stream and concurrency > 1 and sent_s < first_ended_s:
            row |= {"ttft_ms": None, "tpot_ms": None}  # sent in step: their prefills wait for one another
    steady = steady_state(
        [Span(sent_s, sent_s + reply.wall_s, reply.completion_tokens) for sent_s, reply in answers], concurrency
    )
    window = {
        **shape,
        "requests": number,
        "tries": tries,
        "wall_s": wall_s,
        "steady_s": steady.seconds if steady else None,
        "steady_tokens": steady.tokens if steady else None,
        "client_late_ms": watch.lateness.late_ms,
        "client_late_share": watch.lateness.share,
        "prefill_s": prefill_s,
        "prompt_tokens": sum(row["prompt_tokens"] for row in rows),
        "chars": sum(row["chars"] for row in rows),
        "completion_tokens": sum(reply.completion_tokens for reply in replies),
        **engine_columns(counted),
    }
    return window, rows


async def _prefill(ctx: StepContext, prompts: str, condition: Condition, name: str) -> float:
    """Seconds to the first token without streaming: wall clock minus this is the decode time of the same shape."""
    clock, taken_s = asyncio.get_running_loop().time, []
    before = await ctx.counters()
    for probe in range(PREFILL_TRIES):
        asked = await _bodies(ctx, prompts, condition, f"{name}-prefill-{probe}", condition.concurrency)
        bodies = [body | {"max_tokens": 1} for body in asked]
        started_s = clock()
        await _in_flight(ctx.client.complete, bodies, condition.concurrency)
        taken_s.append(clock() - started_s)
    # what the engine counts late must not fall into the window that follows
    await ctx.counters_after(before, PREFILL_TRIES * condition.concurrency)
    return min(taken_s)


async def _in_flight(
    send: Callable[[Mapping[str, Any]], Awaitable[Any]], bodies: Sequence[dict[str, Any]], concurrency: int
) -> list[tuple[float, Any]]:
    """When each of `bodies` was sent, by the loop's clock, and its answer; at most `concurrency` at a time."""
    slots, clock = asyncio.Semaphore(concurrency), asyncio.get_running_loop().time

    async def one(body: dict[str, Any]) -> tuple[float, Any]:
        async with slots:
            return clock(), await send(body)

    return list(await asyncio.gather(*(one(body) for body in bodies)))


async def _bodies(
    ctx: StepContext, prompts: str, condition: Condition, window: str, number: int, **asked: Any
) -> list[dict[str, Any]]:
    """Requests of one window, with what else is `asked` of `Client.request`.

    Their prompts are counted by the engine here, before any clock starts.
    """
    bodies = []
    for index in range(number):
        seed = prompt_seed(condition.name, window, index)
        prompt = await ctx.prompt(prompts, seed, condition.context_tokens, condition.output_tokens)
        bodies.append(ctx.client.request(prompt, condition.output_tokens, fixed=True, **asked))
    return bodies


def request_row(reply: Reply | StreamReply) -> dict[str, Any]:
    """One answer as columns of `requests`; a streamed one has its times, too."""
    text = reply.text if isinstance(reply, StreamReply) else reply.reasoning + reply.body
    row: dict[str, Any] = {
        "prompt_tokens": reply.prompt_tokens,
        "completion_tokens": reply.completion_tokens,
        "wall_s": reply.wall_s,
        "finish_reason": reply.finish_reason,
        "chars": len(text),
        **text_columns(text, None if isinstance(reply, StreamReply) else reply.token_ids),
        "mean_logprob": None if isinstance(reply, StreamReply) else reply.mean_logprob,
        "text": text,
    }
    if isinstance(reply, StreamReply):
        row |= {
            "ttft_ms": _ms(reply.first_token_s),
            "tpot_ms": _ms(reply.tpot_s),
            "chunks": reply.chunks,
            "largest_chunk_tokens": reply.largest_chunk_tokens,
        }
    return row


def engine_columns(counted: Counters) -> dict[str, Any]:
    """What the engine counted, as columns of a window."""
    positions = counted.accepted_by_position
    return {
        "engine_generation_tokens": _whole(counted.generation_tokens),
        "engine_drafts": _whole(counted.drafts),
        "engine_draft_tokens": _whole(counted.draft_tokens),
        "engine_accepted_tokens": _whole(counted.accepted_tokens),
        "engine_accepted_by_position": None if positions is None else [int(value) for value in positions],
        "engine_denoising_steps": _whole(counted.denoising_steps),
        "engine_committed_tokens": _whole(counted.committed_tokens),
        "engine_prefix_hits": _whole(counted.prefix_hits),
        "engine_preemptions": _whole(counted.preemptions),
    }


def _whole(value: float | None) -> int | None:
    return None if value is None else int(value)


def _ms(seconds: float | None) -> float | None:
    return None if seconds is None else 1000 * seconds
