"""From a step's spec to the file that measures it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from typing import Protocol, cast

from configs.known_steps import module_of
from configs.step import MeasuredStep
from tasks.context import StepContext
from tasks.guards.finding import Finding, Judgement


class StepFile(Protocol):
    """What `tasks/steps/<step>.py` defines.

    A file may also define `make_ready(spec, tell)`: what can be fetched, installed or found missing before an engine
    is started. It calls `tell` with a line at least every second; an error out of `tell` is to end it at once. And
    `smoke(ctx, spec, items)`: `Trial`, where the items of other steps don't tell enough.
    """

    def measure(self, ctx: StepContext, spec: MeasuredStep) -> Awaitable[list[Judgement]]:
        """Measure what no earlier attempt measured, write the rows, and judge all of them."""


def file_of(spec: MeasuredStep) -> StepFile:
    """The file that measures the step of `spec`.

    Raises:
        StepIncomplete: there is no such file.
    """
    return cast(StepFile, module_of("tasks", spec))


Trial = Callable[[StepContext, MeasuredStep, int], Awaitable[list[Finding | None]]]
"""Tries so many items of a step's work before hours are spent, and returns what the guards say."""


def trial_of(spec: MeasuredStep) -> Trial | None:
    """How the step is tried; None: it has nothing to try of its own.

    Raises:
        StepIncomplete: there is no such file.
    """
    return cast(Trial | None, getattr(file_of(spec), "smoke", None))


class NotWanted(Exception):
    """Raised out of `tell`, in the thread that makes a step ready: its runner was asked to stop."""


async def make_ready(spec: MeasuredStep, tell: Callable[[str], None]) -> None:
    """Do what the step can do before there is an engine; most have nothing to do.

    If this is cancelled, the work ends at the next line that it tells: a stop doesn't wait for an install or a
    download.

    Raises:
        SpecsweepError: the step can't be measured here; the text says why, and what to do.
    """
    prepare = getattr(file_of(spec), "make_ready", None)
    if prepare is None:
        return
    cancelled = threading.Event()

    def tell_if_wanted(line: str) -> None:
        if cancelled.is_set():
            raise NotWanted
        tell(line)

    try:
        await asyncio.to_thread(prepare, spec, tell_if_wanted)
    except asyncio.CancelledError:
        cancelled.set()
        raise
