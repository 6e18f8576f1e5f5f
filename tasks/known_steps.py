"""From a step's spec to the file that measures it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Protocol, cast

from configs.known_steps import module_of
from configs.step import MeasuredStep
from tasks.context import StepContext
from tasks.guards.finding import Finding, Judgement


class StepFile(Protocol):
    """What `tasks/steps/<step>.py` defines.

    A file may also define `make_ready(spec, tell)`: what can be fetched, installed or found missing before an engine
    is started.
    """

    def measure(self, ctx: StepContext, spec: MeasuredStep) -> Awaitable[list[Judgement]]:
        """Measure what no earlier attempt measured, write the rows, and judge all of them."""

    def smoke(self, ctx: StepContext, spec: MeasuredStep, items: int) -> Awaitable[list[Finding | None]]:
        """Try `items` items of its work before hours are spent; empty if the items of other steps tell enough."""


def file_of(spec: MeasuredStep) -> StepFile:
    """The file that measures the step of `spec`.

    Raises:
        StepIncomplete: there is no such file.
    """
    return cast(StepFile, module_of("tasks", spec))


def make_ready(spec: MeasuredStep, tell: Callable[[str], None]) -> None:
    """Do what the step can do before there is an engine; most have nothing to do.

    Raises:
        SpecsweepError: the step can't be measured here; the text says why, and what to do.
    """
    prepare = getattr(file_of(spec), "make_ready", None)
    if prepare is not None:
        prepare(spec, tell)
