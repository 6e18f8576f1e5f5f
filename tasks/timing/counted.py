"""How long prompts are by the engine's own count: what it later says that it was sent must be as long."""

from __future__ import annotations

from collections.abc import Iterable

from tasks.client import RequestFailed
from tasks.context import StepContext
from tasks.prompts import Prompt


async def counted_tokens(ctx: StepContext, prompts: Iterable[tuple[str, Prompt]]) -> dict[str, int]:
    """Tokens of prompts by name, counted before any clock starts; none at all: the engine doesn't count."""
    counted: dict[str, int] = {}
    for name, prompt in prompts:
        try:
            counted[name] = await ctx.client.count_tokens(prompt)
        except RequestFailed as error:
            print(f"nobody can tell whether prompts are cut: {error}", flush=True)
            return {}
    return counted
