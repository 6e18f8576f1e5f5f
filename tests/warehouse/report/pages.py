"""Rows of the page made by hand, a page as its reader gets it, and a store's page had every cell been started twice."""

from collections.abc import Sequence
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import polars as pl

from warehouse.dataset.consolidate.inputs import polars_schema
from warehouse.dataset.snapshot import publish, read_table
from warehouse.dataset.tables import PAIRS, PRODUCT_TABLES, RESULTS_CONSOLIDATED, VISITS
from warehouse.ledger.store import Store
from warehouse.report.answer import answers
from warehouse.report.display.figures import Row
from warehouse.report.display.view import View, make_view
from warehouse.report.page import render_report, write_report


def row(technique: str, tok_s: float | None = None, **columns: Any) -> dict[str, Any]:
    known = {
        "run_id": "r1", "cell_key": technique, "model": "m", "family": "gemma4", "precision": "bf16", "engine": "e",
        "gpu": "h100", "technique": technique, "step": "throughput", "condition": "short c=1", "mode": "fixed",
        "context_tokens": 64, "concurrency": 1, "verdict": "ok", "reasons": [], "details": [], "tok_s": tok_s,
        "visits": 2, "repeats": 6, "interval_scope": "between starts", "weights": "real", "attempts": 1,
        "compared_as": columns.get("model", "m"), "measured_at": "2026-11-22T10:00:00+00:00",
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


VOID = {"meta"}


class Page(HTMLParser):
    """Elements of a page, checked to be well nested."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.stack: list[str] = []
        self.words: list[str] = []
        self.feed(text)
        assert self.stack == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self.stack.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.stack.pop() == tag

    def handle_data(self, data: str) -> None:
        if "style" not in self.stack:
            self.words.append(data)

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.words).split())

    def count(self, name: str) -> int:
        return sum(tag == name for tag, _ in self.elements)


HALF_WIDTH = 0.02  # of every speedup's interval, as a share of it: what two quiet starts have
SHARED = ("run_id", "cell_key", "model", "precision", "technique", "k", "engine", "gpu", "step", "condition", "mode")


def page_of(store: Store) -> Page:
    publish(store)
    return Page(Path(write_report(store)).read_text(encoding="utf-8"))


def page_with_starts(store: Store) -> Page:
    """The page of the store's runs had every cell been started twice on a machine, so that its speedups are claims."""
    manifest = publish(store)
    tables = {name: read_table(store, manifest, name) for name in PRODUCT_TABLES}
    timed = pl.col("tok_s").is_not_null()
    rows = tables["results_consolidated"].with_columns(
        visits=pl.when(timed).then(2),
        interval_scope=pl.when(timed).then(pl.lit("between starts")),
        speedup_lo=pl.col("speedup") * (1 - HALF_WIDTH),
        speedup_hi=pl.col("speedup") * (1 + HALF_WIDTH),
    )
    others = tables["pairs"].filter(~pl.col("kind").is_in(("speed", "placebo")))
    made = [speed_pair(row) for row in rows.to_dicts() if row["speedup"] is not None]
    made += [placebo(row) for row in rows.to_dicts() if row["technique"] == "ar" and row["mode"] == "fixed"]
    pairs = pl.concat([others, pl.DataFrame(made, schema=polars_schema(PAIRS))])
    return Page(render_report(tables | {"results_consolidated": rows, "pairs": pairs}, manifest))


def speed_pair(row: dict[str, Any], **columns: Any) -> dict[str, Any]:
    """The comparison of a row that has a speedup, over two starts of both arms."""
    low, high = row["speedup"] * (1 - HALF_WIDTH), row["speedup"] * (1 + HALF_WIDTH)
    conclusion = "faster" if low > 1 else "slower" if high < 1 else "inconclusive"
    said = {
        "kind": "speed", "baseline_cell_key": "ar", "metric": "tok_s", "n": row["repeats"], "value": row["tok_s"],
        "baseline_value": row["tok_s"] / row["speedup"], "ratio": row["speedup"], "ratio_lo": low, "ratio_hi": high,
        "ratio_p": 0.001, "machine": "host/card", "visits": 2, "baseline_visits": 2, "drift": -0.004,
        "verdict": row["verdict"], "reasons": [], "conclusion": conclusion,
    }  # fmt: skip
    return dict.fromkeys(PAIRS.column_names()) | {name: row[name] for name in SHARED} | said | columns


def placebo(row: dict[str, Any], **columns: Any) -> dict[str, Any]:
    """An AR row's first start against its second."""
    said = {
        "kind": "placebo", "baseline_cell_key": row["cell_key"], "metric": "tok_s", "n": row["repeats"],
        "ratio": 1.003, "ratio_lo": 0.98, "ratio_hi": 1.027, "ratio_p": 0.41, "ratio_p_holm": 0.82,
        "ratio_detectable": 1.035, "machine": "host/card", "visits": 1, "baseline_visits": 1, "drift": -0.004,
        "verdict": "ok", "reasons": [], "conclusion": "inconclusive",
    }  # fmt: skip
    return dict.fromkeys(PAIRS.column_names()) | {name: row[name] for name in SHARED} | said | columns
