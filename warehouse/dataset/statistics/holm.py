"""One error rate for all comparisons of a sweep."""

from __future__ import annotations

from collections.abc import Sequence


def holm(p_values: Sequence[float]) -> list[float]:
    """Adjusted p values, in the order given: those below 5 % are claims that are all true with 95 % probability.

    Source: Holm, Scandinavian Journal of Statistics 6 (1979) 65-70: the i-th smallest of m is multiplied by m - i + 1,
    never falls below the one before it, and stops at 1. Holds whatever the dependence; cells share their baseline and
    their items.
    """
    adjusted = [0.0] * len(p_values)
    highest = 0.0
    for rank, index in enumerate(sorted(range(len(p_values)), key=p_values.__getitem__)):
        highest = max(highest, min(1.0, p_values[index] * (len(p_values) - rank)))
        adjusted[index] = highest
    return adjusted
