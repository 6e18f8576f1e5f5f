"""GPQA-Diamond through lm-eval."""

from __future__ import annotations

from typing import ClassVar, Literal

from configs.evals.spec import EvalStep
from configs.evals.suites import GPQA, Framework, SuiteFacts


class EvalGpqaStep(EvalStep):
    """GPQA-Diamond through lm-eval."""

    step: Literal["eval-gpqa"]

    framework: ClassVar[Framework] = "lm-eval"
    suite: ClassVar[SuiteFacts] = GPQA
