"""Snapshots: made current once, by a manifest that is created last."""

import io
import json
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

import duckdb
import pandas as pd
import polars as pl
import pytest

from tests.warehouse.rented import StandingClock
from tests.warehouse.synthetic import DemoRun, StepWriter, item, write_demo_run
from warehouse.dataset import snapshot
from warehouse.dataset.build import Consolidated
from warehouse.dataset.snapshot import current, data_dictionary, publish, read_current, read_table
from warehouse.dataset.tables import PRODUCT_TABLES
from warehouse.ledger.clock import SYSTEM, Clock
from warehouse.ledger.runs import OddRun
from warehouse.ledger.steps import EVAL_ITEMS
from warehouse.ledger.store import Store, StoreError, open_store
from warehouse.ledger.tables import sha256_hex


def measure(store: Store, run_id: str, cell: int = 0, clock: Clock = SYSTEM) -> None:
    run = DemoRun(store, run_id, clock)
    step = StepWriter(run.ledger, run.plan.cells[cell].cell.cell_key, "eval-tiny")
    step.write(EVAL_ITEMS, [item(index, right=True) for index in range(4)]).commit()


@pytest.mark.slow(1)
def test_a_snapshot_is_what_its_manifest_says(store: Store) -> None:
    assert current(store) is None
    with pytest.raises(StoreError, match="no snapshot yet"):
        read_current(store)
    measure(store, "one")
    manifest = publish(store)
    assert (manifest.number, manifest.run_ids, current(store)) == (1, ("one",), manifest)
    assert " ".join(PRODUCT_TABLES) == "results_consolidated pairs visits load k_curves recommendations attempts"
    first, *others = PRODUCT_TABLES
    names = [f"{first}.parquet", f"{first}.csv", *(f"{name}.parquet" for name in others)]
    assert [file.key.rsplit("/", 1)[1] for file in manifest.files] == names
    assert [read_current(store, name).height for name in PRODUCT_TABLES] == [2, 0, 0, 0, 0, 0, 0]
    assert [file.rows for file in manifest.files] == [2, 2, 0, 0, 0, 0, 0, 0]
    keys = store.list("snapshots")
    assert publish(store) == manifest and store.list("snapshots") == keys, "nothing new makes no snapshot"


def test_older_snapshots_stay_readable(local: Store) -> None:
    measure(local, "one")
    first = publish(local)
    measure(local, "two", cell=1)
    second = publish(local)
    assert (second.number, second.run_ids) == (2, ("one", "two"))
    assert read_table(local, first, "results_consolidated").height == 2
    assert read_current(local).height == 4
    assert publish(local, ["two"]).run_ids == ("two",)
    assert read_current(local)["run_id"].unique().to_list() == ["two"]


@pytest.mark.slow(2)
def test_a_publisher_that_was_overtaken_builds_again(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    measure(store, "one")
    real = snapshot.consolidate

    def slow(store: Store, run_ids: Sequence[str], skip: Callable[[OddRun], None] | None = None) -> Consolidated:
        built = real(store, run_ids, skip)
        monkeypatch.setattr(snapshot, "consolidate", real)
        measure(store, "two", cell=1)
        publish(store)
        return built

    monkeypatch.setattr(snapshot, "consolidate", slow)
    manifest = publish(store)
    assert (manifest.number, manifest.run_ids) == (1, ("one", "two"))
    assert read_current(store).height == 4


@pytest.mark.slow(3)
def test_many_publishers_at_once_make_one_snapshot(store: Store) -> None:
    measure(store, "one")
    with ThreadPoolExecutor(6) as pool:
        found = list(pool.map(lambda _: publish(open_store(store.url)), range(6)))
    assert len({manifest.version for manifest in found}) == 1
    assert len(store.list("snapshots/manifests")) == 1


def test_a_lagging_listing_does_not_hide_the_newest(local: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    measure(local, "one")
    publish(local)
    measure(local, "two", cell=1)
    newest = publish(local)
    stale = [key for key in local.list("snapshots/manifests") if not key.endswith("000002.json")]
    monkeypatch.setattr(local, "list", lambda prefix: stale)
    assert current(local) == newest


def test_a_snapshot_of_an_older_schema_has_nulls(local: Store) -> None:
    measure(local, "one")
    manifest = publish(local)
    buffer = io.BytesIO()
    read_current(local).drop("mbu").with_columns(later=pl.lit(1)).write_parquet(buffer)
    file = manifest.file("results_consolidated.parquet")
    local.put(file.key, buffer.getvalue())
    older = file.model_copy(update={"sha256": sha256_hex(buffer.getvalue())})
    frame = read_table(local, manifest.model_copy(update={"files": (older,)}), "results_consolidated")
    assert frame.columns == PRODUCT_TABLES["results_consolidated"].column_names() and frame["mbu"].is_null().all()


@pytest.mark.parametrize("damage", [b"", b'{"number": 1, "vers', b'{"number": 1}', b"\xff\x00"])
def test_a_damaged_manifest_is_named_and_made_again_where_it_is_removed(local: Store, damage: bytes) -> None:
    measure(local, "one")
    whole = publish(local)
    key = "snapshots/manifests/000001.json"
    local.put(key, damage)
    for reader in (current, publish, read_current):
        with pytest.raises(StoreError, match=rf"{key} is no manifest \(.*remove it and run `sweep report`") as error:
            reader(local)
        assert "\n" not in str(error.value)
    local.delete(key)
    assert publish(local).version == whole.version
    assert read_current(local).height == 2


def test_a_changed_file_is_not_believed(local: Store) -> None:
    measure(local, "one")
    manifest = publish(local)
    local.put(manifest.file("pairs.parquet").key, b"other")
    with pytest.raises(StoreError, match=r"pairs\.parquet"):
        read_current(local, "pairs")
    with pytest.raises(StoreError, match="use one of"):
        read_current(local, "results")


@pytest.mark.slow(4)
def test_the_dataset_opens_with_one_line(local: Store) -> None:
    write_demo_run(local)
    publish(local)
    path = local.uri("results_consolidated.parquet")
    rows = read_current(local).height
    assert pl.read_parquet(path).height == rows
    assert len(pd.read_parquet(path)) == rows
    assert duckdb.sql(f"select count(*) from '{path}'").fetchall() == [(rows,)]
    frame = pl.read_csv(local.uri("results_consolidated.csv"), infer_schema_length=None)
    assert frame.height == rows
    lists = [json.loads(text) for text in frame["acceptance_by_position"].drop_nulls()]
    assert any(found == pytest.approx([0.88, 0.74], abs=0.01) for found in lists)
    assert frame["k"].null_count() > 0


def test_s3_is_read_by_polars_with_the_stores_own_options(s3_store_url: str) -> None:
    store = open_store(s3_store_url)
    measure(store, "one")
    manifest = publish(store)
    key = manifest.file("results_consolidated.parquet").key
    lazy = pl.scan_parquet(store.uri(key), storage_options=store.storage_options)
    assert lazy.select(pl.len()).collect().item() == 2
    copied = store.get("results_consolidated.parquet")
    assert copied is not None and pl.read_parquet(io.BytesIO(copied)).height == 2


def test_local_and_s3_give_the_same_contents(local: Store, s3_store_url: str) -> None:
    remote = open_store(s3_store_url)
    for store in (local, remote):
        measure(store, "one", clock=StandingClock())
    assert publish(local).content_sha256 == publish(remote).content_sha256


def test_a_lost_convenience_copy_comes_back_and_the_dictionary_names_every_column(local: Store) -> None:
    measure(local, "one")
    publish(local)
    local.delete("results_consolidated.parquet")
    local.put("DATA_DICTIONARY.md", b"stale")
    publish(local)
    assert local.get("results_consolidated.parquet") is not None
    assert local.get("DATA_DICTIONARY.md") == data_dictionary().encode()
    text = data_dictionary()
    for table in PRODUCT_TABLES.values():
        assert f"## {table.name}" in text
        assert all(f"`{column.name}`" in text for column in table.columns)
