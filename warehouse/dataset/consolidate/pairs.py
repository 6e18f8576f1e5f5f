"""Pair rows: what every comparison of a cell with its AR cell carries, and those of accuracy."""

from __future__ import annotations

from warehouse.dataset.consolidate.rows import Row
from warehouse.dataset.statistics.paired import Comparison

_SHARED = ("run_id", "cell_key", "model", "precision", "technique", "k", "made_up", "engine", "gpu", "step")

_COMPARED = (
    "n", "samples", "gained", "lost", "delta", "delta_lo", "delta_hi", "boot_lo", "boot_hi", "margin", "bound_lo",
    "ni_p", "mde",
)  # fmt: skip
"""Figures of a comparison that are columns under the same name."""


SETTLEABLE = "settleable"
"""Key under which an accuracy pair carries its `Comparison`, until `families.settled` takes it out. No column."""


def accuracy_pair(row: Row, baseline_cell_key: str, comparison: Comparison, baseline_value: float, value: float) -> Row:
    """Scores over the items that both cells answered, as a comparison; its verdict is still to be settled."""
    return shared(row, baseline_cell_key, "accuracy") | {
        "metric": row["metric"],
        "extractor": row["extractor"],
        "baseline_value": baseline_value,
        "value": value,
        **{name: getattr(comparison, name) for name in _COMPARED},
        "mcnemar_p": comparison.p,
        "verdict": row["verdict"],
        "reasons": list(row["reasons"]),
        SETTLEABLE: comparison,
    }


def shared(row: Row, baseline_cell_key: str, kind: str) -> Row:
    """Who is compared with whom, by what. A row of `visits`, which is AR's own in a placebo, names only its model."""
    compared_as = row.get("compared_as") or row["model"]
    said = {"kind": kind, "baseline_cell_key": baseline_cell_key, "compared_as": compared_as}
    return {name: row[name] for name in _SHARED} | said
