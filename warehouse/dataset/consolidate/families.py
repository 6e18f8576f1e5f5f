"""The last word on accuracy comparisons: each is settled among all comparisons of the same evaluation of its run.

A run compares many cells with AR; at 5 % each, one in twenty differs by chance. Holm's correction keeps the chance of
any false claim at 5 % over the family: all models, precisions and techniques, one evaluation, one run.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from warehouse.dataset.consolidate.pairs import SETTLEABLE
from warehouse.dataset.consolidate.parity_bar import Cell
from warehouse.dataset.consolidate.rows import Row
from warehouse.dataset.statistics.conclude import Standing, conclude, n_needed, wording
from warehouse.dataset.statistics.holm import holm
from warehouse.dataset.statistics.paired import Comparison
from warehouse.ledger.verdicts import Reason


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
