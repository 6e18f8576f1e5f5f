"""Needle: a sentence hidden in real prose of an exact length, and a question for its number at the end."""

from __future__ import annotations

import asyncio
import hashlib
from collections import defaultdict
from collections.abc import Sequence
from typing import Any, NamedTuple

from configs.steps.needle import NeedleStep, condition_name
from tasks.context import Progress, StepContext
from tasks.guards.answers import ANY_SUSPECT, blank_output, truncated
from tasks.guards.finding import Finding, Judgement, judge
from tasks.haystack import haystack, last_number, needle_of
from tasks.prompts import Prompt
from warehouse.ledger.steps.needle import NEEDLES

PROMPT_HASH_HEX_DIGITS = 16
"""Tells prompts apart; cells of a model are asked the same ones."""

SMOKE_DEPTH_PERCENT = 50


class NeedlePlace(NamedTuple):
    """Where a needle is hidden; in this order they are asked, the cheap ones first. It names a row."""

    context_tokens: int
    depth_percent: int
    seed: int


async def measure(ctx: StepContext, spec: NeedleStep) -> list[Judgement]:
    """Ask for every needle that earlier attempts didn't; each answer is stored as it comes."""
    rows = await ctx.resume(NEEDLES, NeedlePlace._fields)
    answered = {tuple(row[name] for name in NeedlePlace._fields) for row in rows}
    wanted = places(spec, spec.lengths(ctx.cell))
    tokens = sum(place.context_tokens for place in wanted)
    slots = asyncio.Semaphore(spec.concurrency)
    asked = [asyncio.ensure_future(_ask(ctx, spec, place, slots)) for place in wanted if place not in answered]
    try:
        for answer in asyncio.as_completed(asked):
            row = await answer
            await ctx.write(NEEDLES, [row])
            rows.append(row)
            read = sum(row["context_tokens"] for row in rows)
            ctx.tell(Progress(100 * read / tokens, f"{_found(rows)} of {len(rows)} found"))
    finally:  # one that failed ends the step: nobody waits for the others
        for task in asked:
            task.cancel()
        await asyncio.gather(*asked, return_exceptions=True)
    return _judgements(rows)


async def smoke(ctx: StepContext, spec: NeedleStep, items: int) -> list[Finding | None]:
    """One needle in the middle of the shortest text. Not to find it is a result; not to answer is a fault."""
    del items
    place = NeedlePlace(spec.lengths(ctx.cell)[0], SMOKE_DEPTH_PERCENT, spec.seeds)  # a seed that `measure` doesn't use
    row = await _ask(ctx, spec, place, asyncio.Semaphore())
    await ctx.write(NEEDLES, [row])
    ctx.tell(Progress(100, f"{_found([row])} of 1 found"))
    return [blank_output([row["body"]])]


def places(spec: NeedleStep, lengths: Sequence[int]) -> list[NeedlePlace]:
    """Every length, depth and seed."""
    return [
        NeedlePlace(tokens, depth, seed)
        for tokens in lengths
        for depth in spec.depths_percent
        for seed in range(spec.seeds)
    ]


async def _ask(ctx: StepContext, spec: NeedleStep, place: NeedlePlace, slots: asyncio.Semaphore) -> dict[str, Any]:
    needle = needle_of(*place)
    async with slots:
        prose = await ctx.prose()
        made = await haystack(needle, *place, prose, lambda text: ctx.client.count_tokens(Prompt(text)))
        reply = await ctx.client.complete(ctx.client.request(Prompt(made.text), spec.max_tokens, fixed=False))
    answer = last_number(reply.body)
    return {
        **place._asdict(),
        "prompt_tokens": reply.prompt_tokens,
        "depth_tokens": made.depth_tokens,
        "prompt_hash": hashlib.sha256(made.text.encode()).hexdigest()[:PROMPT_HASH_HEX_DIGITS],
        "needle": needle.sentence,
        "gold": needle.number,
        "answer": answer,
        "correct": answer == needle.number,
        "truncated": reply.finish_reason == "length",
        "blank": not reply.body.strip(),
        "completion_tokens": reply.completion_tokens,
        "body": reply.body,
    }


def _judgements(rows: Sequence[dict[str, Any]]) -> list[Judgement]:
    """A needle that wasn't found is a result, and so is a blank answer among others; only blank ones aren't."""
    conditions: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for row in rows:
        conditions[condition_name(row["context_tokens"], row["depth_percent"])].append(row)
    return [
        judge(
            name,
            None,
            [
                blank_output([row["body"] for row in there]) if all(row["blank"] for row in there) else None,
                truncated(["length" if row["truncated"] else "stop" for row in there], ANY_SUSPECT),
            ],
        )
        for name, there in conditions.items()
    ]


def _found(rows: Sequence[dict[str, Any]]) -> int:
    return sum(row["correct"] for row in rows)
