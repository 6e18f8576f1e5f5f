"""Every evaluation of the table, whatever suite and framework."""

from __future__ import annotations

from warehouse.dataset.evals.rows import rows
from warehouse.ledger.steps.evaluation import EVAL_TABLES

__all__ = ["TABLES", "rows"]

TABLES = EVAL_TABLES
