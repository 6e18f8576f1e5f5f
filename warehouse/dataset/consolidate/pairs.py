"""Comparisons with the AR cell: what every pair row carries, and the last word on those of accuracy.

A run compares many cells with AR; at 5 % each, one in twenty differs by chance. Holm's correction keeps the chance of
any false claim at 5 % over the family: all models, precisions and techniques, one evaluation, one run.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from warehouse.dataset.consolidate.parity_bar import Cell
from warehouse.dataset.consolidate.rows import Row
from warehouse.dataset.statistics.conclude import Standing, conclude, holm, n_needed, wording
from warehouse.dataset.statistics.paired import Comparison
from warehouse.ledger.verdicts import Reason

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


def settled(pairs: Sequence[Row], barred: Mapping[Cell, str]) -> list[Row]:
    """The pairs in the order given; accuracy pairs with corrected p values, conclusion, items needed and wording.

    Args:
        pairs: accuracy pairs wait for one another.
        barred: cells that fail parity, with the sentence that says so: they claim nothing, so no family has them.
    """
    done = list(pairs)
    families: dict[tuple[str, str], list[int]] = {}
    for at, pair in enumerate(pairs):
        sentence = barred.get((pair["run_id"], pair["cell_key"]))
        if SETTLEABLE in pair and sentence is not None:
            done[at] = _barred(pair, sentence)
        elif SETTLEABLE in pair:
            families.setdefault((pair["run_id"], pair["step"]), []).append(at)
    for family in families.values():
        waiting: list[Comparison] = [pairs[at][SETTLEABLE] for at in family]
        differ, lose = holm([each.p for each in waiting]), holm([each.ni_p for each in waiting])
        for at, each, p, ni_p in zip(family, waiting, differ, lose, strict=True):
            done[at] = _plain(pairs[at]) | _said(each, Standing(p, ni_p, len(family)))
    return done


def _plain(pair: Row) -> Row:
    return {name: value for name, value in pair.items() if name != SETTLEABLE}


def _barred(pair: Row, sentence: str) -> Row:
    return _plain(pair) | {
        "verdict": "suspect",
        "reasons": [*pair["reasons"], Reason.PARITY_FAILED.value],
        "conclusion": "inconclusive",
        "wording": f"no claim: {sentence}",
    }


def _said(found: Comparison, standing: Standing) -> Row:
    conclusion = conclude(found, standing.p_holm, standing.ni_p_holm)
    return {
        "mcnemar_p_holm": standing.p_holm,
        "ni_p_holm": standing.ni_p_holm,
        "conclusion": conclusion,
        "n_needed": n_needed(found, conclusion, standing.comparisons),
        "wording": wording(found, conclusion, standing),
    }
