"""Does an engine read prompts, all of each and each time? It counts them beforehand, and is asked a few new ones twice.

Whatever its counters say: an engine that remembers prompts need not count that.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import cycle, islice
from secrets import randbelow
from typing import Any

from tasks.client import RequestFailed
from tasks.context import StepContext
from tasks.guards.tokens import FEWEST_SEEN, failed_requests, secretly_cached
from tasks.prompts import Prompt
from tasks.timing.timed import untimed
from warehouse.ledger.verdicts import Finding

MOST_ROUNDS = 4
"""Rounds of new prompts, as long as all before accuse the engine. Where eight of ten requests wait for a processor, one
of seven first rounds accuses a sound engine. One of a thousand times all four do."""


def never_met(prompt: Prompt) -> Prompt:
    """The prompt behind a number that no engine has met: about as long, and no part of it can be remembered."""
    return prompt._replace(text=f"{randbelow(10**8)} {prompt.text}")


def other_lengths(prompts: Sequence[Prompt], number: int) -> list[Prompt]:
    """New prompts like the shortest and like the longest, each with none, one, ... words more.

    So some are of an even and some of an odd number of tokens, for which kernels are compiled apart.
    """
    by_length = sorted(prompts, key=lambda each: len(each.text))
    new = [never_met(each) for each in (by_length[0], by_length[-1])]
    return [each._replace(text=each.text + more * " of") for more in range(number // len(new)) for each in new]


async def ask_twice(ctx: StepContext, prompts: Sequence[Prompt]) -> list[Finding | None]:
    """Ask for one token of the longest prompts, as if they had never been met, and right away again.

    Compared with what was measured before, a machine that got calm since would look like a cache. Of a few prompts that
    are long each is asked several times, since a short one among them would hide what is remembered.

    An engine that is accused gets further rounds, and all count: on a busy machine, new prompts may all have waited by
    chance. Raises RequestFailed: the engine is gone.
    """
    longest = sorted(prompts, key=lambda each: len(each.text), reverse=True)
    long = [each for each in longest if 2 * len(each.text) >= len(longest[0].text)]
    seen: list[tuple[float, float]] = []
    windows: list[dict[str, Any]] = []
    for _ in range(MOST_ROUNDS):
        new = map(never_met, islice(cycle(long), FEWEST_SEEN))
        requests = [ctx.client.ready(ctx.client.request(each, 1, fixed=True)) for each in new for _ in range(2)]
        answered = await untimed(ctx, "asked twice", requests, 1)
        failed = {"failed": len(answered.failures), "first_failure": next(iter(answered.failures), None)}
        windows.append({"requests": len(requests), **failed})
        spans = zip(answered.places, (span for span, _ in answered.each), strict=True)
        took = {place: 1000 * (span.ended_s - span.sent_s) for place, span in spans}
        seen += [(took[place], took[place + 1]) for place in took if place % 2 == 0 and place + 1 in took]
        if (cached := secretly_cached(seen)) is None:
            break
    return [cached, failed_requests(windows)]


class CountedPrompts:
    """Tokens of prompts, as the engine counts them once in its start, before any clock starts."""

    def __init__(self, prompts: Iterable[tuple[str, Prompt]]) -> None:
        """`prompts` by what they are called."""
        self._prompts = [*prompts]
        self._tokens: dict[str, int] | None = None

    async def count(self, ctx: StepContext) -> bool:
        """Ask the engine, if it wasn't asked yet; returns whether this is the first time."""
        if self._tokens is not None:
            return False
        self._tokens = {}
        try:
            self._tokens = {name: await ctx.client.count_tokens(prompt) for name, prompt in self._prompts}
        except RequestFailed as error:
            print(f"nobody can tell whether prompts are cut: {error}", flush=True)
        return True

    def of(self, name: str) -> int | None:
        """None: the engine doesn't count."""
        return (self._tokens or {}).get(name)
