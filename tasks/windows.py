"""One window: a condition's requests, timed by the client and counted by the engine, as rows of two tables."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from typing import Any

from configs.steps.throughput import Condition
from tasks.client import Reply, StreamReply
from tasks.context import Progress, StepContext
from tasks.guards.text_measures import text_columns
from tasks.meters import Counters
from tasks.prompts import prompt_seed


async def warm_up(ctx: StepContext, prompts: str, condition: Condition) -> None:
    """Send untimed requests of the same shape, with prompts of their own."""
    for number in range(condition.warmup):
        ctx.tell(Progress(0, f"{condition.name}: warm-up {number + 1}/{condition.warmup}"))
        bodies = await _bodies(ctx, prompts, condition, f"warm-up-{number}", condition.concurrency)
        await asyncio.gather(*map(ctx.client.complete, bodies))


async def measured_window(
    ctx: StepContext, prompts: str, condition: Condition, mode: str, repeat: int
) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Measure one repeat; returns its row of `windows` and its rows of `requests`."""
    number = max(condition.stream_requests if mode == "stream" else condition.requests, condition.concurrency)
    concurrency = condition.concurrency
    bodies = await _bodies(ctx, prompts, condition, f"{mode}-{repeat}", number)
    prefill_s = await _prefill(ctx, prompts, condition) if mode == "stream" else None
    send = ctx.client.stream if mode == "stream" else ctx.client.complete
    before = await ctx.counters()
    started = time.perf_counter()
    replies: list[Reply | StreamReply] = await _in_flight(send, bodies, concurrency)
    wall_s = time.perf_counter() - started
    counted = await ctx.counters_after(before, number)
    shape = {
        "condition": condition.name,
        "mode": mode,
        "context_tokens": condition.context_tokens,
        "output_tokens": condition.output_tokens,
        "concurrency": concurrency,
        "repeat": repeat,
    }
    rows = [
        {
            **shape,
            **request_row(reply),
            "request_id": f"{condition.name}/{mode}-{repeat}/{index}",
            "prompt_chars": len(body["messages"][-1]["content"]),
        }
        for index, (body, reply) in enumerate(zip(bodies, replies, strict=True))
    ]
    window = {
        **shape,
        "requests": number,
        "wall_s": wall_s,
        "prefill_s": prefill_s,
        "prompt_tokens": sum(row["prompt_tokens"] for row in rows),
        "chars": sum(row["chars"] for row in rows),
        "completion_tokens": sum(reply.completion_tokens for reply in replies),
        **_engine_columns(counted),
    }
    return window, rows


async def _prefill(ctx: StepContext, prompts: str, condition: Condition) -> float:
    """Seconds to the first token without streaming: wall clock minus this is the decode time of the same shape."""
    bodies = await _bodies(ctx, prompts, condition, "prefill", condition.concurrency)
    bodies = [body | {"max_tokens": 1} for body in bodies]
    started = time.perf_counter()
    await _in_flight(ctx.client.complete, bodies, condition.concurrency)
    return time.perf_counter() - started


async def _in_flight(send: Any, bodies: Sequence[dict[str, Any]], concurrency: int) -> list[Any]:
    """Answers in the order of `bodies`, with at most `concurrency` requests at a time."""
    slots = asyncio.Semaphore(concurrency)

    async def one(body: dict[str, Any]) -> Any:
        async with slots:
            return await send(body)

    return list(await asyncio.gather(*(one(body) for body in bodies)))


async def _bodies(
    ctx: StepContext, prompts: str, condition: Condition, window: str, number: int
) -> list[dict[str, Any]]:
    """Requests of one window. Their prompts are counted by the engine here, before any clock starts."""
    bodies = []
    for index in range(number):
        seed = prompt_seed(condition.name, window, index)
        prompt = await ctx.prompt(prompts, seed, condition.context_tokens, condition.output_tokens)
        bodies.append(ctx.client.request(prompt, condition.output_tokens, fixed=True, token_ids=True))
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


def _engine_columns(counted: Counters) -> dict[str, Any]:
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
