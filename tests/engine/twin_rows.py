"""What rows of a finished mirrored twin must have: all that two starts tell, and nothing that accuses the engine."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest

from tests.busy_machine import BUSY_MACHINE
from warehouse.tables import DIAGNOSTIC_EXTRACTORS

LOAD = ("step", "condition", "mode")

OF_STARTS = ("start_sd", "tok_s_lo", "tok_s_hi")
"""What only several starts tell of a rate."""

OF_A_PAIR = ("ratio", "ratio_lo", "ratio_hi", "ratio_p", "ratio_p_holm", "drift")

CLAIMED = ("speedup", "speedup_lo", "speedup_hi")


def results(store: Path) -> pl.DataFrame:
    return pl.read_parquet(store / "results_consolidated.parquet")


def accusations(rows: pl.DataFrame) -> list[dict[str, object]]:
    """Rows with a reason that a busy machine doesn't explain.

    Readers that nobody counts by disagree with those that count: the family thinks of a wrong letter first, on purpose.
    """
    found = []
    for row in rows.iter_rows(named=True):
        by_design = {"extractors_disagree"} if row["extractor"] in DIAGNOSTIC_EXTRACTORS else set()
        if set(row["reasons"]) - BUSY_MACHINE - by_design:
            found.append({name: row[name] for name in ("technique", "k", *LOAD, "verdict", "reasons", "details")})
    return found


def assert_two_starts_are_told(store: Path) -> None:
    """Every rate that may be believed has all that its starts, and AR's, tell of it; if there is none: skipped."""
    rates = results(store).filter(pl.col("tok_s").is_not_null())
    assert set(rates["visits"]) == {2}, "there and back"
    sound = rates.filter(verdict="ok")
    assert {name: sound[name].null_count() for name in OF_STARTS} == dict.fromkeys(OF_STARTS, 0)
    assert set(sound["interval_scope"]) <= {"between starts"}
    compared = sound.filter(pl.col("technique") != "ar").join(sound.filter(technique="ar"), on=LOAD, how="semi")
    pairs = pl.read_parquet(store / "pairs.parquet")
    placebos, speeds = pairs.filter(kind="placebo"), pairs.filter(kind="speed")
    has_failed = "differs" in placebos["conclusion"]  # of 5 % of sound runs AR against AR says so
    for row in compared.iter_rows(named=True):
        load = {name: row[name] for name in LOAD}
        pair = speeds.filter(cell_key=row["cell_key"], **load)
        assert pair.height == placebos.filter(**load).height == 1, load
        assert [name for name in OF_A_PAIR if pair[name][0] is None] == [], load
        withheld = CLAIMED[1:] if has_failed else ()
        assert [name for name in CLAIMED if row[name] is None] == [*withheld], row["details"]
    if not compared.height:
        pytest.skip("a busy machine spoiled every rate, and only those that are ok are compared")
