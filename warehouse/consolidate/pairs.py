"""Pair rows: every comparison of a cell with its AR cell, with what it can and can't say."""

from __future__ import annotations

from warehouse.consolidate.rows import Row
from warehouse.statistics.compare import PairedAccuracy

_SHARED = ("run_id", "cell_key", "model", "precision", "technique", "k", "engine", "gpu", "step")


def speed_pair(row: Row, baseline: Row) -> Row:
    """A row with a speedup, as a comparison; inconclusive without an interval, or where it contains 1."""
    low, high = row.get("speedup_lo"), row.get("speedup_hi")
    conclusion = "inconclusive"
    if low is not None and high is not None:
        conclusion = "faster" if low > 1 else "slower" if high < 1 else "inconclusive"
    return _shared(row, baseline, "speed") | {
        "condition": row["condition"],
        "mode": row["mode"],
        "metric": "tok_s",
        "n": row["repeats"],
        "baseline_value": baseline["tok_s"],
        "value": row["tok_s"],
        "ratio": row["speedup"],
        "ratio_lo": low,
        "ratio_hi": high,
        "conclusion": conclusion,
    }


def accuracy_pair(row: Row, baseline: Row, compared: tuple[PairedAccuracy, float, float]) -> Row:
    """Scores over the items that both cells answered, as a comparison."""
    found, before, now = compared
    return _shared(row, baseline, "accuracy") | {
        "metric": row["metric"],
        "extractor": row["extractor"],
        "baseline_value": before,
        "value": now,
        **found._asdict(),
    }


def _shared(row: Row, baseline: Row, kind: str) -> Row:
    return {name: row[name] for name in _SHARED} | {"kind": kind, "baseline_cell_key": baseline["cell_key"]}
