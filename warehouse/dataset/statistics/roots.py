"""Where a falling function crosses zero."""

from __future__ import annotations

from collections.abc import Callable


def falling_root(falling: Callable[[float], float], low: float, high: float) -> float:
    """Where a falling function crosses zero between `low` and `high`, to 2^-60 of their distance."""
    for _ in range(60):
        middle = (low + high) / 2
        if falling(middle) > 0:
            low = middle
        else:
            high = middle
    return (low + high) / 2
