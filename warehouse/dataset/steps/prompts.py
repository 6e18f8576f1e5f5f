"""Prompts: seconds, rates and speedups of named workloads, and whether the programs in their answers are right."""

from __future__ import annotations

from warehouse.dataset.loads.workloads import prompt_rows as rows
from warehouse.ledger.timed_tables import PROMPTS

__all__ = ["TABLES", "rows"]

TABLES = PROMPTS
