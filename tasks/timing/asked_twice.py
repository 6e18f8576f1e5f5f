"""Does an engine remember prompts, whatever its counters say? A few new ones are asked twice."""

from __future__ import annotations

from collections.abc import Sequence
from secrets import randbelow

from tasks.context import StepContext
from tasks.guards.finding import Finding
from tasks.guards.tokens import FEWEST_SEEN, failed_requests, secretly_cached
from tasks.prompts import Prompt
from tasks.timing.timed import untimed


async def ask_twice(ctx: StepContext, prompts: Sequence[Prompt]) -> list[Finding | None]:
    """Ask for one token of the longest prompts, each behind a number that no engine has met, and right away again.

    Held against what was measured before, a machine that got calm since would look like a cache.

    Raises:
        RequestFailed: the engine is gone.
    """
    longest = sorted(prompts, key=lambda each: len(each.text))[-FEWEST_SEEN:]
    new = [each._replace(text=f"{randbelow(10**8)} {each.text}") for each in longest]
    requests = [ctx.client.ready(ctx.client.request(each, 1, fixed=True)) for each in new for _ in range(2)]
    answered = await untimed(ctx, "asked twice", requests, 1)
    took = {
        place: 1000 * (span.ended_s - span.sent_s)
        for place, (span, _) in zip(answered.places, answered.each, strict=True)
    }
    seen = [(took[place], took[place + 1]) for place in took if place % 2 == 0 and place + 1 in took]
    failed = {
        "requests": len(requests),
        "failed": len(answered.failures),
        "first_failure": next(iter(answered.failures), None),
    }
    return [secretly_cached(seen), failed_requests([failed])]
