"""Smoke: did the cell pass? What else it asked is in the tables of the steps that it tried."""

from __future__ import annotations

from warehouse.dataset.consolidate.inputs import CommittedStep, Group, Raw
from warehouse.dataset.consolidate.rows import Made, Result, plain_row
from warehouse.dataset.steps.eval import tallied
from warehouse.dataset.steps.eval_tiny import counted, share_columns
from warehouse.dataset.tables import SMOKE
from warehouse.ledger.steps import EVAL_ITEMS, EVAL_SAMPLES, SANITY

TABLES = (SANITY,)


def rows(group: Group, raw: Raw) -> Made:
    """One row per cell; scored over all questions that it tried, the demo's own and those of every suite."""
    return Made([_row(step, raw) for step in group])


def _row(step: CommittedStep, raw: Raw) -> Result:
    result = plain_row(step, raw).plus({"metric": SMOKE})
    own = [row | {"right": row["right_last"]} for row in raw.rows(step, EVAL_ITEMS, counted)]
    suites = raw.rows(step, EVAL_SAMPLES, tallied)
    if not own and not suites:
        return result
    sums = {name: sum(row[name] for row in (*own, *suites)) for name in ("n", "right", "truncated", "blank")}
    score = share_columns(sums.pop("right"), sums["n"])
    return result.plus(sums | score | {"extractor": "last-in-body" if suites else "last-letter"})
