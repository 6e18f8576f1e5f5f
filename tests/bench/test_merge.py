"""One dataset of several leases: what a later one replaces, and what is said anew of what stands together."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from configs.checkout import ROOT

SCRIPTS = ROOT / "bench" / "h200"
BRACKET = (pl.col("run_id") == "shapes-6db765ea") & (pl.col("step") == "throughput")
"""A whole one, of the 31B at K=4."""
FIXED = BRACKET & (pl.col("mode") == "fixed")


@pytest.fixture
def whole(tmp_path: Path) -> Path:
    """A copy of the dataset of all leases."""
    return Path(shutil.copytree(SCRIPTS / "snapshot", tmp_path / "whole"))


def merged(whole: Path, *newer: Path) -> pl.DataFrame:
    argv = [sys.executable, str(SCRIPTS / "merge.py"), str(whole), *map(str, newer)]
    done = subprocess.run(argv, cwd=ROOT, env={"PYTHONPATH": str(ROOT)}, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return table(whole, "results_consolidated")


def table(folder: Path, name: str) -> pl.DataFrame:
    return pl.read_parquet(folder / f"{name}.parquet")


def lease(folder: Path, rows: pl.DataFrame, **changed: Any) -> Path:
    """A later lease's dataset, of rows of this one."""
    folder.mkdir()
    later = {"measured_at": "2026-12-01T10:00:00.000+00:00"} | changed
    columns = [pl.lit(value, dtype=rows.schema[name]).alias(name) for name, value in later.items()]
    rows.with_columns(columns).write_parquet(folder / "results_consolidated.parquet")
    return folder


@pytest.mark.slow(7)
@pytest.mark.parametrize("run_id", ["shapes-6db765ea", "shapes-of-a-later-version"])
def test_a_bracket_that_was_cut_off_replaces_nothing(whole: Path, tmp_path: Path, run_id: str) -> None:
    before, claimed = table(whole, "results_consolidated"), table(whole, "pairs").filter(BRACKET)
    cut = {"run_id": run_id, "condition": None, "mode": None, "tok_s": None, "speedup": None, "verdict": "suspect"}
    later = lease(tmp_path / "cut", before.filter(FIXED).head(1), reasons=["not_measured"], **cut)
    after = merged(whole, later)
    kept = ("run_id", "cell_key", "condition", "mode", "tok_s", "verdict")
    assert after.filter(BRACKET).select(kept).equals(before.filter(BRACKET).select(kept))
    assert len(claimed) and table(whole, "pairs").filter(BRACKET).equals(claimed)


@pytest.mark.slow(16)
def test_a_bracket_whose_second_control_was_cut_off_does_not_replace_a_whole_one(whole: Path, tmp_path: Path) -> None:
    before = table(whole, "results_consolidated")
    later = lease(tmp_path / "cut", before.filter(FIXED), run_id="shapes-of-a-later-version", tok_s=222.0)
    starts = table(whole, "visits").filter(BRACKET & ((pl.col("role") == "cell") | (pl.col("visit") == 1)))
    starts.with_columns(run_id=pl.lit("shapes-of-a-later-version")).write_parquet(later / "visits.parquet")
    kept = ("run_id", "cell_key", "condition", "mode", "tok_s")
    assert merged(whole, later).filter(BRACKET).select(kept).equals(before.filter(BRACKET).select(kept))


@pytest.mark.slow(6)
def test_a_bracket_that_may_be_believed_replaces_a_suspect_one_though_its_second_control_was_cut_off(
    whole: Path, tmp_path: Path
) -> None:
    before = table(whole, "results_consolidated")
    suspect = pl.when(BRACKET).then(pl.lit("suspect")).otherwise("verdict").alias("verdict")
    before.with_columns(suspect).write_parquet(whole / "results_consolidated.parquet")
    later = lease(tmp_path / "later", before.filter(FIXED), run_id="shapes-of-a-later-version", tok_s=222.0)
    after = merged(whole, later)
    assert after.filter(BRACKET).is_empty()
    assert set(after.filter(pl.col("run_id") == "shapes-of-a-later-version")["tok_s"]) == {222.0}


@pytest.mark.slow(6)
def test_what_is_measured_again_replaces_the_bracket_whole_and_its_pairs(whole: Path, tmp_path: Path) -> None:
    one = table(whole, "results_consolidated").filter(FIXED & (pl.col("condition") == "short c=1"))
    after = merged(whole, lease(tmp_path / "again", one, tok_s=222.0))
    assert after.filter(BRACKET).select("condition", "tok_s").rows() == [("short c=1", 222.0)]
    assert table(whole, "pairs").filter(BRACKET & (pl.col("kind") == "speed")).is_empty(), (
        "they were of the other lease"
    )


def claims(whole: Path, run_id: str, condition: str) -> dict[str, tuple[str, float]]:
    """By cell: what a speed pair says, and how wide its interval is."""
    of = (pl.col("run_id") == run_id) & (pl.col("condition") == condition) & (pl.col("kind") == "speed")
    told = table(whole, "pairs").filter(of).select("cell_key", "conclusion", pl.col("ratio_hi") / pl.col("ratio_lo"))
    return {cell: (conclusion, width) for cell, conclusion, width in told.rows()}


def test_a_claim_rests_on_starts_that_stand_in_the_dataset(whole: Path) -> None:
    run = "shapes-cb4e30e9"
    assert {said for said, _ in claims(whole, run, "short c=1").values()} == {"faster"}
    visits = table(whole, "visits")
    kept = visits.filter((pl.col("run_id") != run) | (pl.col("role") == "cell") | (pl.col("visit") == 1))
    kept.write_parquet(whole / "visits.parquet")  # the second start of every control is gone
    has_baseline = ~pl.col("details").list.join(" ").str.contains("no_baseline")
    after = merged(whole).filter((pl.col("run_id") == run) & has_baseline & pl.col("tok_s").is_not_null())
    assert {said for said, _ in claims(whole, run, "short c=1").values()} == {"inconclusive"}
    assert after["speedup"].null_count() == 0 and after["speedup_lo"].null_count() == len(after)
    assert table(whole, "pairs").filter((pl.col("run_id") == run) & (pl.col("kind") == "placebo")).is_empty()


@pytest.mark.slow(5)
def test_a_start_that_is_called_suspect_later_says_nothing_of_how_starts_differ(whole: Path) -> None:
    run, cell = "shapes-cb4e30e9", "b099e401f461765c"
    [_, before] = claims(whole, run, "short c=1")[cell]
    other = (pl.col("run_id") == run) & (pl.col("cell_key") != cell)
    table(whole, "visits").with_columns(
        verdict=pl.when(other).then(pl.lit("suspect")).otherwise("verdict")
    ).write_parquet(whole / "visits.parquet")
    merged(whole)
    said, width = claims(whole, run, "short c=1")[cell]
    assert said == "inconclusive" and width != before, "narrower, where one of the others was the least still of all"
    [pair] = table(whole, "pairs").filter(
        (pl.col("run_id") == run) & (pl.col("condition") == "short c=1") & (pl.col("kind") == "speed")
    )["wording"]
    assert "no placebo" in pair, "nobody is left to hold AR's second start against"


def test_a_suspect_row_is_compared_with_nothing_and_counts_in_no_family(whole: Path) -> None:
    rows = table(whole, "results_consolidated").filter(pl.col("verdict") != "ok")
    compared = table(whole, "pairs").filter(pl.col("kind") == "speed")
    on = ["run_id", "cell_key", "step", "condition", "mode"]
    assert len(rows) and compared.join(rows, on=on, how="semi").is_empty()
    assert rows["speedup"].null_count() == len(rows)


@pytest.mark.slow(3)
def test_claims_are_corrected_for_all_that_stand_together(whole: Path) -> None:
    alone = (pl.col("kind") == "speed") & (pl.col("condition") == "list c=8") & (pl.col("technique") == "mtp")
    alone &= pl.col("gpu") == "h200"
    pairs = table(whole, "pairs").with_columns(
        ratio_p_holm=pl.when(alone).then(pl.col("ratio_p")).otherwise("ratio_p_holm"),
        conclusion=pl.when(alone).then(pl.lit("faster")).otherwise("conclusion"),
    )
    pairs.write_parquet(whole / "pairs.parquet")
    merged(whole)
    [pair] = table(whole, "pairs").filter(alone).to_dicts()
    assert (pair["conclusion"], round(pair["ratio_p_holm"], 3)) == ("inconclusive", 0.053)
    assert pair["wording"].startswith("1.55 x [1.14, 2.12], ") and "; inconclusive as one of 2" in pair["wording"]


@pytest.mark.slow(16)
def test_requests_that_shared_their_experts_make_no_claim_and_merging_again_changes_nothing(whole: Path) -> None:
    before = merged(whole)
    moe = pl.col("model").is_in(["gemma-4-26b-a4b-shape", "qwen3.6-35b-a3b-shape"]) & (pl.col("step") == "throughput")
    drawn = pl.col("made_up").str.contains("routing=random")
    assert set(before.filter(moe & drawn)["verdict"]) == {"ok"}
    moe &= ~drawn
    many = before.filter(moe & (pl.col("concurrency") > 1) & (pl.col("mode") == "fixed"))
    assert len(many) and set(many["verdict"]) == {"suspect"} and many["speedup"].null_count() == len(many)
    assert all("same_experts" in reasons for reasons in many["reasons"].to_list())
    accused = before.filter(pl.col("reasons").list.contains("same_experts"))["details"].to_list()
    assert {sum("share their experts" in detail for detail in details) for details in accused} == {1}, "in one wording"
    starts = table(whole, "visits").filter(moe & (pl.col("condition") == "short c=1") & (pl.col("mode") == "fixed"))
    told = {role: "same_experts" in reasons for role, reasons in starts.select("role", "reasons").rows()}
    assert told == {"control": False, "cell": True}, "AR's one request has one token a step, a drafting one several"
    first = {name: table(whole, name) for name in ("pairs", "visits")}
    assert merged(whole).equals(before) and all(table(whole, name).equals(frame) for name, frame in first.items())
