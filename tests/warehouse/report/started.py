"""A store's page as it would be had every cell been started twice on its machine, so that its speedups are claims."""

from typing import Any

import polars as pl

from tests.warehouse.read_page import Page
from warehouse.dataset.consolidate.inputs import polars_schema
from warehouse.dataset.snapshot import publish, read_table
from warehouse.dataset.tables import PAIRS, PRODUCT_TABLES
from warehouse.ledger.store import Store
from warehouse.report.page import render_report

HALF_WIDTH = 0.02
"""Of every speedup's interval, as a share of it: what two quiet starts have."""

SHARED = ("run_id", "cell_key", "model", "precision", "technique", "k", "engine", "gpu", "step", "condition", "mode")


def page_with_starts(store: Store) -> Page:
    """The page of the store's runs, their speeds given two starts."""
    manifest = publish(store)
    tables = {name: read_table(store, manifest, name) for name in PRODUCT_TABLES}
    rows = tables["results_consolidated"].with_columns(
        visits=pl.when(pl.col("tok_s").is_not_null()).then(2),
        interval_scope=pl.when(pl.col("tok_s").is_not_null()).then(pl.lit("between starts")),
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
    return _nothing() | {name: row[name] for name in SHARED} | said | columns


def placebo(row: dict[str, Any], **columns: Any) -> dict[str, Any]:
    """An AR row's first start against its second."""
    said = {
        "kind": "placebo", "baseline_cell_key": row["cell_key"], "metric": "tok_s", "n": row["repeats"],
        "ratio": 1.003, "ratio_lo": 0.98, "ratio_hi": 1.027, "ratio_p": 0.41, "ratio_p_holm": 0.82,
        "ratio_detectable": 1.035,
        "machine": "host/card", "visits": 1, "baseline_visits": 1, "drift": -0.004, "verdict": "ok", "reasons": [],
        "conclusion": "inconclusive",
    }  # fmt: skip
    return _nothing() | {name: row[name] for name in SHARED} | said | columns


def _nothing() -> dict[str, Any]:
    return dict.fromkeys(PAIRS.column_names())
