"""KMMLU through HRET."""

from __future__ import annotations

from typing import ClassVar, Literal

from configs.evals.spec import EvalStep
from configs.evals.suites import KMMLU, Framework, SuiteFacts


class EvalKmmluStep(EvalStep):
    """KMMLU through HRET."""

    step: Literal["eval-kmmlu"]

    framework: ClassVar[Framework] = "hret"
    suite: ClassVar[SuiteFacts] = KMMLU
