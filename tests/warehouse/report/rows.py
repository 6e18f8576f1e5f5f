"""Rows of the page, made by hand: one model on one machine, and whatever a test plants."""

from collections.abc import Sequence
from typing import Any

import polars as pl

from warehouse.dataset.consolidate.inputs import polars_schema
from warehouse.dataset.tables import PRODUCT_TABLES, RESULTS_CONSOLIDATED, VISITS
from warehouse.report.answer import answers
from warehouse.report.display.figures import Row
from warehouse.report.display.view import View, make_view


def row(technique: str, tok_s: float | None = None, **columns: Any) -> dict[str, Any]:
    known = {
        "run_id": "r1", "cell_key": technique, "model": "m", "family": "gemma4", "precision": "bf16", "engine": "e",
        "gpu": "h100", "technique": technique, "step": "throughput", "condition": "short c=1", "mode": "fixed",
        "context_tokens": 64, "concurrency": 1, "verdict": "ok", "reasons": [], "details": [], "tok_s": tok_s,
        "visits": 2, "repeats": 6, "interval_scope": "between starts", "weights": "real", "attempts": 1,
        "compared_as": columns.get("model", "m"),
        "measured_at": "2026-11-22T10:00:00+00:00",
    }  # fmt: skip
    return dict.fromkeys(RESULTS_CONSOLIDATED.column_names()) | known | columns


AR = row("ar", 80.0, tok_s_lo=79.0, tok_s_hi=81.0, repeat_sd=0.02, start_sd=0.01)
MTP = row("mtp", 160.0, speedup=2.0, speedup_lo=1.96, speedup_hi=2.04, k=4, acceptance_source="measured")


def seen(*rows: Row, pairs: tuple[Row, ...] = (), **more: Any) -> View:
    return View([*rows], [*pairs], [], 0, **more)


def text_of(view: View) -> str:
    [found] = answers(view)
    return f"{found.verdict} {found.evidence}"


def frame(table: Any, *rows: Row) -> pl.DataFrame:
    names = table.column_names()
    return pl.DataFrame([{name: each.get(name) for name in names} for each in rows], schema=polars_schema(table))


def viewed(rows: list[Row], pairs: list[Row]) -> View:
    return make_view(tables_of(results_consolidated=rows, pairs=pairs))


def tables_of(**rows: Sequence[Row]) -> dict[str, pl.DataFrame]:
    """All tables of a snapshot, with these rows in some."""
    return {name: frame(table, *rows.get(name, ())) for name, table in PRODUCT_TABLES.items()}


def visit(number: int, **columns: Any) -> Row:
    known = {
        "run_id": "r1", "cell_key": "ar", "served_cell_key": "ar", "gpu": "h100", "condition": "short c=1",
        "mode": "fixed", "role": "cell", "visit": number, "attempt": 1, "machine": "host/card", "complete": True,
        "step": "throughput", "repeats": 3, "gpu_s": 30.0, "verdict": "ok",
    }  # fmt: skip
    return dict.fromkeys(VISITS.column_names()) | known | columns
