"""GPQA-Diamond a second time, through inspect_ai."""

from __future__ import annotations

from typing import ClassVar, Literal

from configs.evals.spec import EvalStep
from configs.evals.suites import GPQA, Framework, SuiteFacts


class EvalGpqaInspectStep(EvalStep):
    """GPQA-Diamond a second time, through inspect_ai."""

    step: Literal["eval-gpqa-inspect"]

    framework: ClassVar[Framework] = "inspect"
    suite: ClassVar[SuiteFacts] = GPQA
