"""Every evaluation of the table, whatever suite and framework."""

from __future__ import annotations

from warehouse.evals.rows import rows
from warehouse.evals.tables import EVAL_TABLES

__all__ = ["SECTIONS", "TABLES", "rows"]

TABLES = EVAL_TABLES
SECTIONS = ()
