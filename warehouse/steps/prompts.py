"""Prompts: seconds, rates and speedups of named workloads, and whether the programs in their answers are right."""

from __future__ import annotations

from warehouse.display.section import Section
from warehouse.timed.tables import PROMPTS
from warehouse.workloads.rows import prompt_rows as rows
from warehouse.workloads.section import workload_section

__all__ = ["SECTIONS", "TABLES", "rows"]

TABLES = PROMPTS

SECTIONS = (Section("workloads", "Workloads", workload_section, 42),)
