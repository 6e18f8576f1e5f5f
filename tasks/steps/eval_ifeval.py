"""IFEval through lm-eval."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

from configs.steps.eval_ifeval import EvalIfevalStep
from tasks.evals import run
from tasks.evals.run import measure, smoke
from tasks.frameworks.job import Job
from tasks.frameworks.process import Frameworks

__all__ = ["make_ready", "measure", "smoke"]


def make_ready(spec: EvalIfevalStep, tell: Callable[[str], None]) -> None:
    """As for every evaluation; and its checkers must have the packages and data that these items need.

    Raises:
        FrameworkFailed: they lack something; the text says what, and where to get it.
        SpecsweepError: as for every evaluation.
    """
    run.make_ready(spec, tell)
    tell("looking whether IFEval's checkers have all they need")
    asyncio.run(_checked(spec))


async def _checked(spec: EvalIfevalStep) -> None:
    """Have nothing graded: the adapter looks for what grading would need, and says what is missing."""
    with TemporaryDirectory(prefix="specsweep-ifeval-") as folder:
        job = Job(
            do="grade", suite=spec.suite.name, items=run.items_of(spec, lambda _: None).items, base_url="",
            model="", max_tokens=0, concurrency=1, plain=True, workdir=folder,
        )  # fmt: skip
        async with Frameworks(Path(folder)) as frameworks:
            await frameworks.get(spec.framework).run(job, "dependencies")
