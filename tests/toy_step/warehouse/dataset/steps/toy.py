"""Toy: the share of greetings that were answered."""

from __future__ import annotations

from warehouse.dataset.consolidate.inputs import Group, Raw
from warehouse.dataset.consolidate.rows import Made, plain_row
from warehouse.ledger.steps.toy import GREETINGS

TABLES = (GREETINGS,)


def rows(group: Group, raw: Raw) -> Made:
    """One row per cell."""
    results = []
    for step in group:
        answers = [row["answer"] for row in raw.rows(step, GREETINGS)]
        score = sum(bool(answer) for answer in answers) / len(answers)
        results.append(plain_row(step, raw).plus({"metric": "greeted", "score": score, "n": len(answers)}))
    return Made(results)
