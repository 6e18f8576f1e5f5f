"""A load with a clock on the wire: its requests are encoded before, its answers are decoded after the clock stopped."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from tasks.client import Ready
from tasks.context import StepContext
from tasks.meters import Counters
from tasks.power.sampler import Sampler
from tasks.power.window import Looks, card_columns
from tasks.steady import delivered_share
from tasks.timing.answers import Answered, answers_of
from tasks.timing.client_watch import ClientWatch, Lateness
from tasks.timing.loops import OnAnswer, closed_loop
from warehouse.statistics.windows import Span


class Timed(NamedTuple):
    """What a closed loop brought, what engine and cards told over it, and how late the client's own timer woke."""

    asked: int
    concurrency: int
    answered: Answered
    counted: Counters
    lateness: Lateness
    looks: Looks

    @property
    def spans(self) -> list[Span]:
        """Each answer's time on the event loop's clock, and its tokens."""
        return [span for span, _ in self.answered.each]

    @property
    def begun_s(self) -> float:
        """When the first of them was sent, on that clock."""
        return min(span.sent_s for span in self.spans)

    def columns(self) -> dict[str, Any]:
        """What every table of windows has of it; `wall_s` runs from the first sending to the last byte."""
        replies, spans = [reply for _, reply in self.answered.each], self.spans
        return {
            "requests": self.asked,
            "failed": len(self.answered.failures),
            "first_failure": next(iter(self.answered.failures), None),
            "wall_s": max(span.ended_s for span in spans) - min(span.sent_s for span in spans),
            "delivered_share": delivered_share(spans, self.concurrency),
            "client_late_ms": self.lateness.late_ms,
            "client_late_share": self.lateness.share,
            "prompt_tokens": sum(reply.prompt_tokens for reply in replies),
            "completion_tokens": sum(reply.completion_tokens for reply in replies),
            **_engine_columns(self.counted),
            **card_columns(self.looks),
        }


async def timed(
    ctx: StepContext, requests: Sequence[Ready], concurrency: int, on_answer: OnAnswer | None = None
) -> Timed:
    """Send requests in a closed loop, over connections that are open before it starts.

    Args:
        ctx: has the client.
        requests: encoded.
        concurrency: requests in flight.
        on_answer: is called inside the clock, as by `closed_loop`.

    Raises:
        RequestFailed: as for `answers_of`, or the engine is gone.
    """
    before = await ctx.counters()
    await ctx.client.connect(concurrency)
    async with Sampler(ctx.cards) as sampler, ClientWatch() as watch:
        exchanges = await closed_loop(ctx.client.hear, requests, concurrency, on_answer)
    counted = await ctx.counters_after(before, len(requests))
    answered = await answers_of(ctx.client, exchanges)
    return Timed(len(requests), concurrency, answered, counted, watch.lateness, sampler.looks)


def with_failures(window: dict[str, Any], beside: Sequence[str]) -> dict[str, Any]:
    """A window's row, to which what failed beside it belongs: its warm-up, its probes. No engine fails only untimed."""
    first = window["first_failure"] or next(iter(beside), None)
    return window | {"failed": window["failed"] + len(beside), "first_failure": first}


def _engine_columns(counted: Counters) -> dict[str, Any]:
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
