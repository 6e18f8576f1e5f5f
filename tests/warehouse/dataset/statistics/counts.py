"""Comparisons of arms with one right-or-wrong answer per item."""

from __future__ import annotations

from warehouse.dataset.statistics.accuracy import Comparison, compare


def compare_counts(n: int, gained: int, lost: int, margin: float, identity: str | None) -> Comparison:
    """From its counts."""
    technique = [1.0] * gained + [0.0] * (n - gained)
    baseline = [0.0] * gained + [1.0] * lost + [0.0] * (n - gained - lost)
    return compare(baseline, technique, 1, margin, identity)
