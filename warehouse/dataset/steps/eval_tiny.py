"""Eval-tiny: how many questions a cell answers correctly, and what it loses against AR on the same ones."""

from __future__ import annotations

from warehouse.dataset.consolidate.inputs import Group
from warehouse.dataset.consolidate.raw import Raw
from warehouse.dataset.consolidate.rows import Made
from warehouse.dataset.consolidate.scores import scores_and_pairs
from warehouse.ledger.steps.eval_tiny import EVAL_ITEMS

TABLES = (EVAL_ITEMS,)


def rows(group: Group, raw: Raw) -> Made:
    """The score that counts, the one that shows where a grader would lie, and the comparison with AR."""
    return scores_and_pairs(group, raw, EVAL_ITEMS)
