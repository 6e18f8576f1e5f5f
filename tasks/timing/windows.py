"""One window: a condition's requests, timed by the client and counted by the engine, as rows of two tables.

Answers are of a fixed length, so with several in flight those of AR end together, and the next prompts are sent
together and wait for one another's prefills, wave after wave; a draft's answers end apart. There TTFT favours drafts,
and so does TPOT a little, by the last requests, which run on while slots empty (simulated for 8 at a time, 2000 tokens
of prompt: 413 ms of AR, 116 of a draft). It is what such a load brings, so it is told as it is. What users would wait
is a load step's TTFT, where answers end by themselves.
"""

from __future__ import annotations

from functools import partial
from statistics import fmean
from typing import Any, NamedTuple

from configs.steps.throughput import NATURAL, PREFILL_TRIES, Condition
from tasks.client import EngineTruth, Ready, Reply, StreamReply
from tasks.context import Progress, StepContext
from tasks.guards.text import text_columns
from tasks.prompts import prompt_seed
from tasks.steady import steady_state
from tasks.timing.answers import AllFailed
from tasks.timing.timed import meet_lengths, timed, untimed, with_failures
from tasks.timing.tries import measured


class WarmUp(NamedTuple):
    """What untimed requests said: mean log-probability of their tokens, in nats, and which of them failed.

    Timed requests can't ask for probabilities. None: the engine sent none.
    """

    mean_logprob: float | None
    failures: list[str]


async def warm_up(ctx: StepContext, prompts: str, condition: Condition) -> WarmUp:
    """Send untimed requests of the same shape, with prompts of their own, and some more for their lengths' sake."""
    said: list[float] = []
    failures: list[str] = []
    for number in range(condition.warmup):
        ctx.tell(Progress(0, f"{condition.name}: warm-up {number + 1}/{condition.warmup}"))
        bodies = await _bodies(ctx, prompts, condition, f"warm-up-{number}", condition.concurrency, logprobs="written")
        answered = await untimed(ctx, "warm-up", [*map(ctx.client.ready, bodies)], condition.concurrency)
        replies = [reply for _, reply in answered.each if isinstance(reply, Reply)]
        said += [reply.mean_logprob for reply in replies if reply.mean_logprob is not None]
        failures += answered.failures
    if condition.warmup:
        failures += await meet_lengths(ctx, partial(_first_tokens, ctx, prompts, condition))
    return WarmUp(fmean(said) if said else None, failures)


async def measured_window(
    ctx: StepContext, prompts: str, condition: Condition, mode: str, repeat: int
) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Measure one repeat; returns its row of `windows` and its rows of `requests`. Each try has prompts of its own.

    Raises:
        AllFailed: in every try.
    """
    return await measured(partial(_window, ctx, prompts, condition, mode, repeat))


async def _window(
    ctx: StepContext, prompts: str, condition: Condition, mode: str, repeat: int, tries: int
) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    is_stream, concurrency = mode == "stream", condition.concurrency
    number = condition.streams if is_stream else max(condition.requests, concurrency)
    name = f"{mode}-{repeat}" if tries == 1 else f"{mode}-{repeat}-try-{tries}"
    bodies = await _bodies(ctx, prompts, condition, name, number, fixed=mode != NATURAL, token_ids=not is_stream)
    prefill_s, probes_failed = await _prefill(ctx, prompts, condition, name) if is_stream else (None, [])
    requests = [ctx.client.ready(body, streams=is_stream) for body in bodies]
    load = await timed(ctx, requests, concurrency)
    shape = {
        "condition": condition.name,
        "mode": mode,
        "context_tokens": condition.context_tokens,
        "output_tokens": condition.output_tokens,
        "concurrency": concurrency,
        "repeat": repeat,
    }
    spans, begun_s = load.spans, load.begun_s
    first_ended_s = min(span.ended_s for span in spans)
    rows = []
    for index, (span, reply) in zip(load.answered.places, load.answered.each, strict=True):
        row = {
            **shape,
            **request_row(reply),
            "request_id": f"{condition.name}/{name}/{index}",
            "prompt_chars": len(bodies[index]["messages"][-1]["content"]),
            "sent_s": span.sent_s - begun_s,
        }
        if is_stream and concurrency > 1 and span.sent_s < first_ended_s:
            row |= {"ttft_ms": None, "tpot_ms": None}  # sent in step: their prefills wait for one another
        rows.append(row)
    steady = steady_state(spans, concurrency)
    window = {
        **shape,
        "steady_s": steady.seconds if steady else None,
        "steady_tokens": steady.tokens if steady else None,
        "prefill_s": prefill_s,
        "chars": sum(row["chars"] for row in rows),
        **load.columns(),
    }
    return with_failures(window, probes_failed), rows


async def _prefill(ctx: StepContext, prompts: str, condition: Condition, name: str) -> tuple[float, list[str]]:
    """Seconds to the first token without streaming, and which probes failed.

    Wall clock minus these seconds is the decode time of the same shape.
    """
    taken_s: list[float] = []
    failures: list[str] = []
    for probe in range(PREFILL_TRIES):
        requests = await _first_tokens(ctx, prompts, condition, f"{name}-prefill-{probe}", condition.concurrency)
        await ctx.client.connect(condition.concurrency)
        answered = await untimed(ctx, "prefill", requests, condition.concurrency)
        failures += answered.failures
        if spans := [span for span, _ in answered.each]:
            taken_s.append(max(span.ended_s for span in spans) - min(span.sent_s for span in spans))
    if not taken_s:
        raise AllFailed(failures)
    return min(taken_s), failures


async def _first_tokens(ctx: StepContext, prompts: str, condition: Condition, window: str, number: int) -> list[Ready]:
    """Requests with the condition's prompts that want no more than the first token."""
    bodies = await _bodies(ctx, prompts, condition, window, number)
    return [ctx.client.ready(body | {"max_tokens": 1}) for body in bodies]


async def _bodies(
    ctx: StepContext, prompts: str, condition: Condition, window: str, number: int, *, fixed: bool = True, **asked: Any
) -> list[dict[str, Any]]:
    """Requests of one window, of the condition's length if `fixed`, with what else is `asked` of `Client.request`.

    Their prompts are counted by the engine here, before any clock starts.
    """
    bodies = []
    for index in range(number):
        seed = prompt_seed(condition.name, window, index)
        prompt = await ctx.prompt(prompts, seed, condition.context_tokens, condition.output_tokens)
        bodies.append(ctx.client.request(prompt, condition.output_tokens, fixed=fixed, **asked))
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
        "token_id_count": _ids(reply),
        "text": text,
        **_engine_truth_columns(reply.engine),
    }
    if isinstance(reply, StreamReply):
        row |= {
            "ttft_ms": _ms(reply.first_token_s),
            "tpot_ms": _ms(reply.tpot_s),
            "chunks": reply.chunks,
            "first_chunk_tokens": reply.first_chunk_tokens,
            "largest_chunk_tokens": reply.largest_chunk_tokens,
        }
    return row


def _ids(reply: Reply | StreamReply) -> int | None:
    if isinstance(reply, StreamReply):
        return reply.token_id_count
    return None if reply.token_ids is None else len(reply.token_ids)


def _engine_truth_columns(engine: EngineTruth) -> dict[str, Any]:
    return {
        "engine_queue_ms": engine.queue_ms,
        "engine_ttft_ms": engine.ttft_ms,
        "engine_generation_ms": engine.generation_ms,
        "engine_itl_ms": engine.itl_ms,
        "engine_draft_steps": engine.draft_steps,
        "engine_draft_tokens": engine.draft_tokens,
        "engine_accepted_tokens": engine.accepted_tokens,
        "engine_accepted_histogram": engine.accepted_histogram,
    }


def _ms(seconds: float | None) -> float | None:
    return None if seconds is None else 1000 * seconds
