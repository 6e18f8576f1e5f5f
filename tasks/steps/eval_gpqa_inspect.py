"""GPQA-Diamond a second time, through inspect_ai."""

from __future__ import annotations

from tasks.evals.run import measure, smoke

__all__ = ["measure", "smoke"]
