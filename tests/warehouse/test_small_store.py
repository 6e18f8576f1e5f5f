"""A store of an earlier day is built to the rows of that day; `small_store/make.py` says what lies in it."""

from __future__ import annotations

import tarfile
from pathlib import Path

import polars as pl
import pytest
from polars.testing import assert_frame_equal

from configs.checkout import ROOT
from configs.schema import Plan
from warehouse.dataset.snapshot import publish, read_current
from warehouse.dataset.tables import PRODUCT_TABLES
from warehouse.ledger.commits import Ledger
from warehouse.ledger.runs import run_ids
from warehouse.ledger.store import Store, open_store
from warehouse.report.page import write_report

STEPS = {"smoke", "memory", "throughput", "load", "depth", "prompts", "needle", "eval-tiny", "eval-gpqa"}

PROSE = ("details", "wording", "tried", "reason", "refusal")
"""Columns of sentences, which may be said in other words: only that there is one is compared."""


@pytest.fixture(scope="module")
def unpacked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("small")
    with tarfile.open(ROOT / "tests/warehouse/small_store/store.tar.xz") as packed:
        packed.extraction_filter = getattr(tarfile, "data_filter", None)  # Python 3.11.4 and later ask for one
        packed.extractall(folder)
    (folder / "snapshots").rename(folder / "kept")
    return folder


@pytest.fixture(scope="module")
def store(unpacked: Path) -> Store:
    """The store without its snapshot, published anew."""
    found = open_store(str(unpacked))
    publish(found)
    return found


@pytest.mark.parametrize("table", PRODUCT_TABLES)
def test_the_rows_are_those_of_the_day(unpacked: Path, store: Store, table: str) -> None:
    [file] = unpacked.glob(f"kept/*/{table}.parquet")
    kept = pl.read_parquet(file)
    assert kept.height
    now = read_current(store, table).select(kept.columns)  # a column may come, none may go
    assert_frame_equal(_comparable(now), _comparable(kept), rel_tol=1e-9, check_row_order=False)


def _comparable(frame: pl.DataFrame) -> pl.DataFrame:
    prose = [name for name in PROSE if name in frame.columns]
    said = [pl.col(name).list.len() if frame.schema[name] == pl.List else pl.col(name).is_not_null() for name in prose]
    return frame.with_columns(said)


def test_every_kind_of_step_is_in_it(store: Store) -> None:
    assert set(read_current(store)["step"]) >= STEPS
    assert {"speed", "accuracy", "placebo"} <= set(read_current(store, "pairs")["kind"])


def test_its_plans_are_read_and_written_back_as_they_were(store: Store) -> None:
    for run_id in run_ids(store):
        plan = Ledger(store, run_id).plan()
        assert Plan.model_validate_json(plan.model_dump_json()) == plan
        Ledger(store, run_id).write_plan(plan)  # another plan would be refused


def test_it_is_reported(store: Store) -> None:
    page = Path(write_report(store)).read_text()
    assert all(run_id in page for run_id in run_ids(store))
