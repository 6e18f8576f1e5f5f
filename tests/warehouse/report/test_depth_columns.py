"""Depths on the page: a column that no row fills is left out."""

from __future__ import annotations

from typing import Any

from tests.warehouse.report.rows import row, seen
from warehouse.report.steps.depth import depth_section


def depth(**columns: Any) -> str:
    told = {"step": "depth", "condition": "tg128", "mode": "decode", "depth_tokens": 0, "tok_s_mean": 80.0} | columns
    return depth_section(seen(row("ar", 80.0, **told))) or ""


def test_a_peak_that_no_run_was_long_enough_for_has_no_column() -> None:
    assert ">peak</th>" in depth(peak_tok_s=90.0) and ">peak</th>" not in depth()
