"""One step of every suite, as a sweep's YAML would make it."""

from __future__ import annotations

from typing import Any

from configs.evals.spec import EvalStep
from configs.evals.suites import SuiteName
from configs.steps.eval_gpqa import EvalGpqaStep
from configs.steps.eval_haerae import EvalHaeraeStep
from configs.steps.eval_ifeval import EvalIfevalStep
from configs.steps.eval_kmmlu import EvalKmmluStep
from configs.steps.eval_mmlu_pro import EvalMmluProStep

STEPS: dict[SuiteName, type[EvalStep]] = {
    "gpqa": EvalGpqaStep,
    "mmlu-pro": EvalMmluProStep,
    "ifeval": EvalIfevalStep,
    "hae-rae": EvalHaeraeStep,
    "kmmlu": EvalKmmluStep,
}


def step_of(suite: SuiteName, **fields: Any) -> EvalStep:
    """A step of this suite with these fields."""
    name = "eval-haerae" if suite == "hae-rae" else f"eval-{suite}"
    return STEPS[suite].model_validate({"step": name, **fields})
