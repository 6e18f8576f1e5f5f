"""HAE-RAE Bench through HRET."""

from __future__ import annotations

from tasks.evals.run import measure, smoke

__all__ = ["measure", "smoke"]
