"""MMLU-Pro through lm-eval."""

from __future__ import annotations

from typing import ClassVar, Literal

from configs.evals.spec import EvalStep
from configs.evals.suites import MMLU_PRO, Framework, SuiteFacts


class EvalMmluProStep(EvalStep):
    """MMLU-Pro through lm-eval."""

    step: Literal["eval-mmlu-pro"]

    framework: ClassVar[Framework] = "lm-eval"
    suite: ClassVar[SuiteFacts] = MMLU_PRO
