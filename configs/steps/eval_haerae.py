"""HAE-RAE Bench through HRET."""

from __future__ import annotations

from typing import ClassVar, Literal

from configs.evals.spec import EvalStep
from configs.evals.suites import HAE_RAE, Framework, SuiteFacts


class EvalHaeraeStep(EvalStep):
    """HAE-RAE Bench through HRET."""

    step: Literal["eval-haerae"]

    framework: ClassVar[Framework] = "hret"
    suite: ClassVar[SuiteFacts] = HAE_RAE
