"""A cell whose engine never starts: what an analyst and a reader of the page learn of it, and when it is forgotten."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import polars as pl
import pytest

from tests.fake_run import write_user_configs
from tests.flows.terminal.test_run import QUICK
from tests.warehouse.read_page import Page

Finish = Callable[..., tuple[int, str]]

WHY = "the engine died: ValueError: the fake engine refuses these arguments"


@pytest.mark.slow(56)
def test_a_cell_that_does_not_start_is_a_row_with_its_reason_until_it_is_measured(
    tmp_path: Path, finish_sweep: Finish
) -> None:
    write_user_configs(tmp_path, "ar mtp", QUICK)
    sweep, store = tmp_path / "sweep.yaml", tmp_path / "store"
    sweep.write_text(sweep.read_text().replace("cells:\n", "max_attempts: 1\ncells:\n"))
    code, said = finish_sweep("run", str(sweep), "--run-id", "r1", FAKE_ENGINE_BROKEN="--speculative-config")
    assert code == 1 and f"fake-model bf16 mtp K=4: {WHY}" in " ".join(said.split()), said

    [tried] = pl.read_parquet(store / "attempts.parquet").filter(outcome="failed").to_dicts()
    names = ("run_id", "model", "precision", "technique", "k", "engine", "gpu", "weights", "acceptance_source")
    assert [tried[name] for name in names] == [
        "r1", "fake-model", "bf16", "mtp", 4, "fake", "cpu", "real", "measured",
    ]  # fmt: skip
    assert (tried["reason"], tried["unmeasured"]) == (WHY, ["smoke", "throughput"])
    results = pl.read_parquet(store / "results_consolidated.parquet")
    assert set(results["technique"]) == {"ar"}, "no row without a measurement"
    page = Page((store / "report.html").read_text())
    assert ("section", {"id": "not-measured"}) in page.elements and ("a", {"href": "#not-measured"}) in page.elements
    assert f"mtp K=4 {WHY} everything failed 1" in page.text
    assert "Tried, and not measured or not whole: mtp K=4. See Not measured." in page.text.partition("Contents")[0]

    code, said = finish_sweep("run", str(sweep), "--run-id", "r1")
    assert code == 0, said
    attempts = pl.read_parquet(store / "attempts.parquet").filter(technique="mtp")
    assert attempts.select("outcome", "unmeasured").rows() == [("failed", []), ("completed", [])]
    page = Page((store / "report.html").read_text())
    assert ("section", {"id": "not-measured"}) not in page.elements and "Tried, and not measured" not in page.text
    assert WHY in page.text, "the attempt is a row for ever"
