"""The steady state of a window: the time in which every slot was busy, and what was produced in it.

A whole window with several requests in flight is too slow, because slots empty at its end: 7 to 12 % with two rounds of
requests (simulated). Requests that differ more in time lose more, so one technique loses more than another.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from configs.steps.throughput import STEADY_ROUNDS
from warehouse.ledger.formulas.windows import Span, steady_bounds, steps_of, tokens_and_seconds, tokens_within


class Steady(NamedTuple):
    """Seconds in which all slots were busy, and the output tokens of that time."""

    seconds: float
    tokens: float


def steady_state(spans: Sequence[Span], concurrency: int) -> Steady | None:
    """What was produced between the first answer and the last sending; None: one at a time, or too few requests.

    Before the first answer the requests are in step, and after the last sending slots empty. In between all slots are
    busy. A request's tokens are spread evenly over its time, its prefill included.
    """
    if concurrency == 1 or len(spans) < STEADY_ROUNDS * concurrency:
        return None
    begin, end = steady_bounds(spans)
    if end <= begin:
        return None
    return Steady(end - begin, sum(tokens for tokens, _ in tokens_within(spans, begin, end)))


def delivered_share(spans: Sequence[Span], concurrency: int) -> float:
    """Mean requests in flight over those asked for, 0 to 1, while there were requests left to fill all slots.

    The integral of those in flight from the first sending to the last, or to the first answer if that is later, over
    that time and `concurrency`. Below 1 the client was slow to send the next request (Little's law).
    """
    begin = min(span.sent_s for span in spans)
    end = max(max(span.sent_s for span in spans), min(span.ended_s for span in spans))
    inside_s = sum(max(0.0, min(span.ended_s, end) - span.sent_s) for span in spans)
    return inside_s / (min(concurrency, len(spans)) * (end - begin)) if end > begin else 1.0


def paces_of(windows: Sequence[Mapping[str, Any]]) -> list[float]:
    """Decoding steps per second of each window, of all its sequences: the machine's pace, whatever drafts are worth.

    Each repeat sends other prompts, and a draft's tok/s differ between them by what was accepted. Steps are those of
    `steps_of`; block diffusion counts its own. Without either count a token is a step.
    """
    paces = []
    for (tokens, seconds), row in zip(tokens_and_seconds(windows), windows, strict=True):
        completion, steps = row["completion_tokens"], row.get("engine_denoising_steps")
        if completion and not steps:
            steps = None if (found := steps_of(row)) is None else max(1, found)
        paces.append(tokens / seconds * (float(steps / completion) if completion and steps else 1.0))
    return paces


def steps_of_answer(request: Mapping[str, Any]) -> int | None:
    """Decoding steps of an answer, its prefill's among them; None: the engine didn't say what it drafted for it."""
    drafts = request.get("engine_draft_steps")
    return None if drafts is None else steps_of({**request, "engine_drafts": drafts, "requests": 1})
