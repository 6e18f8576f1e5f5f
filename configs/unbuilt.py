"""Steps that suites could name before a version could measure them: stored plans keep them for ever."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from configs.step import StepSpec


class OnceUnbuiltStep(StepSpec):
    """A step that a stored plan has from before it was built: read as it was written, and never measured.

    Plans are kept for ever, so a name stays here for ever. Only stored plans may have one (`known_steps.StoredStep`).
    Its `params` tells it from the built step of the same name; in a user's YAML that key stays unknown.
    """

    step: Literal[
        "depth",
        "load",
        "memory",
        "prompts",
        "needle",
        "eval-gpqa",
        "eval-gpqa-inspect",
        "eval-mmlu-pro",
        "eval-ifeval",
        "eval-haerae",
        "eval-kmmlu",
    ]
    items: int | None = Field(None, gt=0)
    params: dict[str, Any]
