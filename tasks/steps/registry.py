"""Which function measures which step."""

from __future__ import annotations

from collections.abc import Awaitable

from configs.schema import EvalTinyStep, ParityStep, SmokeStep, Step, ThroughputStep, UnbuiltStep
from tasks.context import StepContext
from tasks.guards.finding import Judgement
from tasks.steps import eval_tiny, parity, smoke, throughput


def measure(ctx: StepContext, spec: Step) -> Awaitable[list[Judgement]]:
    """Start the measurement that `spec` asks for.

    Raises:
        NotImplementedError: the step is planned but not built yet; `buildable` says so beforehand.
    """
    match spec:
        case SmokeStep():
            return smoke.measure(ctx, spec)
        case ThroughputStep():
            return throughput.measure(ctx, spec)
        case ParityStep():
            return parity.measure(ctx, spec)
        case EvalTinyStep():
            return eval_tiny.measure(ctx, spec)
        case UnbuiltStep():
            raise NotImplementedError(f"step {spec.step!r} is not built yet")


def buildable(spec: Step) -> bool:
    """Whether this version can measure the step."""
    return not isinstance(spec, UnbuiltStep)
