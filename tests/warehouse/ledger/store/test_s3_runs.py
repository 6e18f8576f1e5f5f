"""The same run on a folder and on S3 servers: same contents, also when the server is killed in the middle."""

import time
from pathlib import Path

import polars as pl
import pytest
from polars.testing import assert_frame_equal

from tests.busy_machine import BUSY_MACHINE
from tests.fake_run import FakeRun
from tests.warehouse.ledger.store.conftest import BUCKET, S3Server
from warehouse.dataset.snapshot import publish, read_current
from warehouse.ledger.store import StoreError, open_store
from warehouse.ledger.store.proof import check_store, require_create_only

MEASURED_NOT_CHOSEN = (
    "tok_s", "tok_s_lo", "tok_s_hi", "cv", "repeat_sd", "start_sd", "ttft_ms", "tpot_ms", "chars_s", "gpu_s",
    "cost_usd", "usd_per_mtok", "mbu", "measured_at", "argv", "details", "speedup", "speedup_lo", "speedup_hi",
    "attempts", "attempt",
)  # fmt: skip
"""Columns that differ between two runs of the same cell; every other one must not."""


TOKEN_S = "0.003"  # of the fake engine: slow enough that its repeats agree on a busy machine, too


def contents(url: str) -> pl.DataFrame:
    store = open_store(url)
    publish(store)
    chosen = read_current(store).drop(MEASURED_NOT_CHOSEN)
    chosen = chosen.with_columns(reasons=pl.col("reasons").list.filter(~pl.element().is_in([*BUSY_MACHINE])))
    others = pl.col("reasons").list.len() > 0
    return chosen.with_columns(verdict=pl.when(others).then(pl.col("verdict")).otherwise(pl.lit("ok")))


@pytest.fixture
def local_contents(tmp_path: Path, node_python: Path) -> pl.DataFrame:
    (tmp_path / "local").mkdir()
    run = FakeRun(tmp_path / "local", "mtp")
    assert run.finish(node_python, FAKE_ENGINE_TOKEN_S=TOKEN_S)[0] == 0
    return contents(run.store_url)


@pytest.mark.slow(47)
@pytest.mark.parametrize("s3_server", ["moto"], indirect=True)
def test_a_run_on_moto_gives_the_same_snapshot(
    tmp_path: Path, node_python: Path, s3_server: S3Server, local_contents: pl.DataFrame
) -> None:
    run = FakeRun(tmp_path, "mtp", store_url=f"s3://{BUCKET}/team/a")
    code, said = run.finish(node_python, FAKE_ENGINE_TOKEN_S=TOKEN_S)
    assert code == 0, said
    assert_frame_equal(contents(run.store_url), local_contents)


@pytest.mark.slow(38)
@pytest.mark.parametrize("s3_server", ["ministack"], indirect=True)
def test_a_server_killed_in_the_middle_loses_nothing(
    tmp_path: Path, node_python: Path, s3_server: S3Server, local_contents: pl.DataFrame
) -> None:
    run = FakeRun(tmp_path, "mtp", store_url=f"s3://{BUCKET}/team/a")
    runner = run.start(node_python, FAKE_ENGINE_TOKEN_S=TOKEN_S)
    parts = f"{run.ledger.step_root(run.key, 'throughput')}/parts"
    deadline = time.monotonic() + 90
    while len(run.ledger.store.list(parts)) < 3:
        assert time.monotonic() < deadline and runner.poll() is None, "no parts arrived"
        time.sleep(0.05)
    s3_server.kill()
    s3_server.start()
    said, _ = runner.communicate(timeout=120)
    assert runner.returncode == 0, said
    assert_frame_equal(contents(run.store_url), local_contents)


@pytest.mark.parametrize("s3_server", ["rclone"], indirect=True)
def test_a_server_that_ignores_create_only_is_refused(s3_server: S3Server) -> None:
    store = open_store(f"s3://{BUCKET}/x")
    failed = {check.name: check.remedy for check in check_store(store) if not check.ok}
    assert "use AWS S3" in failed["create-only is honoured"]
    with pytest.raises(StoreError, match="ignores create-only"):
        require_create_only(store)


@pytest.mark.parametrize("s3_server", ["moto", "ministack"], indirect=True)
def test_a_server_that_honours_it_is_trusted(s3_server: S3Server) -> None:
    store = open_store(f"s3://{BUCKET}/x")
    assert [check.name for check in check_store(store) if not check.ok] == []
    require_create_only(store)
    assert store.list("") == [], "the self-test leaves nothing behind"
