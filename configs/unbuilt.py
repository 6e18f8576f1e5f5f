"""Steps that suites may already name, though no version can measure them yet."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from configs.step import StepSpec


class UnbuiltStep(StepSpec):
    """A step that this version plans and names, but can't measure yet. Once one is built, its name leaves this list."""

    step: Literal[
        "load",
        "depth",
        "prompts",
        "memory",
    ]
    items: int | None = Field(None, gt=0)
    params: dict[str, Any] = Field(default_factory=dict)
