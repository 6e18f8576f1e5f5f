"""Depth: prompt processing and token generation at context depths, as llama-benchy tells them."""

from __future__ import annotations

from warehouse.depths.rows import depth_rows as rows
from warehouse.depths.section import depth_section
from warehouse.display.section import Section
from warehouse.timed.tables import DEPTH

__all__ = ["SECTIONS", "TABLES", "rows"]

TABLES = DEPTH

SECTIONS = (Section("depth", "Depth", depth_section, 35),)
