"""IFEval through lm-eval."""

from __future__ import annotations

from typing import ClassVar, Literal

from configs.evals.spec import EvalStep
from configs.evals.suites import IFEVAL, Framework, SuiteFacts


class EvalIfevalStep(EvalStep):
    """IFEval through lm-eval."""

    step: Literal["eval-ifeval"]

    framework: ClassVar[Framework] = "lm-eval"
    suite: ClassVar[SuiteFacts] = IFEVAL
