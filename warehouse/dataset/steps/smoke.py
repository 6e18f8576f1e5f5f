"""Smoke: did the cell pass? What else it asked is in the tables of the steps that it tried."""

from __future__ import annotations

from typing import Any

from warehouse.dataset.consolidate.inputs import CommittedStep, Group
from warehouse.dataset.consolidate.raw import Raw
from warehouse.dataset.consolidate.readings import tallied
from warehouse.dataset.consolidate.rows import Made
from warehouse.dataset.consolidate.scores import counted, smoke_row
from warehouse.ledger.steps.eval_tiny import EVAL_ITEMS
from warehouse.ledger.steps.evaluation import EVAL_SAMPLES
from warehouse.ledger.steps.smoke import SANITY

TABLES = (SANITY,)


def rows(group: Group, raw: Raw) -> Made:
    """One row per cell; scored if it tried questions."""
    return Made([smoke_row(step, raw, tried(step, raw)) for step in group], [])


def tried(step: CommittedStep, raw: Raw) -> dict[str, Any] | None:
    """Sums over all questions that smoke tried, the demo's own and those of every suite; None: it tried none."""
    own = [row | {"right": row["right_last"]} for row in raw.rows(step, EVAL_ITEMS, counted)]
    suites = raw.rows(step, EVAL_SAMPLES, tallied)
    if not own and not suites:
        return None
    sums = {name: sum(row[name] for row in (*own, *suites)) for name in ("n", "right", "truncated", "blank")}
    return sums | {"extractor": "last-in-body" if suites else "last-letter"}
