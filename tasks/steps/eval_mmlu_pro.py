"""MMLU-Pro through lm-eval."""

from __future__ import annotations

from tasks.evals.run import make_ready, measure, smoke

__all__ = ["make_ready", "measure", "smoke"]
