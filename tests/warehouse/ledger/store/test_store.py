"""One contract for every store, and the refusal of a server that breaks it.

What people leave in a store's folders beside our numbered objects is not taken for one.

Google Cloud Storage: what its dialect asks of the one conditional write, and what a user is told without a key.
"""

import errno
import os
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.graded_run import write_graded_run
from tests.warehouse.ledger.store.fake_google import FakeGoogle
from tests.warehouse.rented import close, rent
from warehouse.dataset.snapshot import current, publish
from warehouse.dataset.tables import PRODUCT_TABLES
from warehouse.ledger.claims import Claims, ManagedElsewhere
from warehouse.ledger.commits import Grading, Ledger, newest, write_regrade
from warehouse.ledger.lease import Leases
from warehouse.ledger.placement import Placements
from warehouse.ledger.store import Store, StoreAway, StoreError, open_store
from warehouse.ledger.store.local import LocalStore
from warehouse.ledger.store.proof import check_store, require_create_only


def test_the_first_writer_of_a_key_stands_unless_it_is_replaced_or_removed(store: Store) -> None:
    assert store.put_new("a/b.json", b"first")
    assert not store.put_new("a/b.json", b"second")
    assert store.get("a/b.json") == b"first"
    store.put("beat", b"1")
    store.put("beat", b"2")
    assert store.get("beat") == b"2"
    store.delete("beat")
    assert store.get("beat") is None
    store.delete("beat")
    assert store.get("no/such") is None
    assert store.age_s("no/such") is None
    assert store.list("no") == []


def test_listing_stays_inside_its_folder_and_is_sorted(store: Store) -> None:
    for key in ("runs/b", "runs/a/x", "runs-other/c"):
        store.put_new(key, b"")
    assert store.list("runs") == ["runs/a/x", "runs/b"]
    assert store.list("") == ["runs-other/c", "runs/a/x", "runs/b"]


def test_age_is_by_the_stores_clock_and_a_listing_tells_what_has_changed_and_how_long_ago(store: Store) -> None:
    store.put_new("young", b"")
    age_s = store.age_s("young")
    assert age_s is not None and -2 <= age_s < 30
    for key in ("cells/a/beat", "cells/a/once", "other"):
        store.put(key, b"1")
    before = {seen.key: seen for seen in store.seen("cells")}
    store.put("cells/a/beat", b"22")
    after = {seen.key: seen for seen in store.seen("cells")}
    assert sorted(before) == sorted(after) == ["cells/a/beat", "cells/a/once"]
    assert [key for key in sorted(after) if after[key].tag != before[key].tag] == ["cells/a/beat"]
    assert all(-2 <= seen.silence_s < 30 for seen in after.values())


def test_one_of_many_racers_wins(store: Store) -> None:
    with ThreadPoolExecutor(16) as pool:
        won = list(pool.map(lambda n: store.put_new("race", f"racer {n}".encode()), range(32)))
    assert won.count(True) == 1
    assert store.get("race") == f"racer {won.index(True)}".encode()


def test_an_honest_store_passes_the_doctor(store: Store) -> None:
    checks = check_store(store)
    assert [check.name for check in checks if not check.ok] == []
    require_create_only(store)
    assert store.list("probe") == []


class WriteOnce(LocalStore):
    """Keys that may write and read, and may not delete."""

    def delete(self, key: str) -> None:
        raise StoreError(f"can't delete {key}: AccessDenied")


def test_a_store_that_may_not_delete_is_proved_and_what_stays_is_said(tmp_path: Path) -> None:
    store = WriteOnce(tmp_path)
    left = require_create_only(store)
    key, *_ = store.list("probe")
    assert left is not None and f"stay below {store.uri(key.rsplit('/', 1)[0])}: can't delete" in left
    remarks = [check for check in check_store(store) if check.remark]
    assert [(check.name, check.ok) for check in remarks] == [("probe objects stay", True)]
    assert all(check.ok for check in check_store(store))


def test_a_folder_that_overwrites_is_refused_for_that(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = WriteOnce(tmp_path)
    monkeypatch.setattr(store, "put_new", lambda key, data: store.put(key, data) is None)
    with pytest.raises(StoreError, match="silently replaced"):
        require_create_only(store)


def test_a_readers_clock_that_is_wrong_changes_no_age(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = open_store(str(tmp_path))
    store.put_new("heartbeat", b"")
    right_s = time.time
    for ahead_s in (3600.0, -3600.0):
        monkeypatch.setattr(time, "time", lambda ahead_s=ahead_s: right_s() + ahead_s)
        age_s = store.silence_s("heartbeat")
        assert age_s is not None and -2 <= age_s < 30
    assert store.list("") == ["heartbeat"], "nothing is left of the comparison"


def test_what_a_killed_writer_or_a_file_manager_leaves_in_a_folder_is_never_listed(tmp_path: Path) -> None:
    store = open_store(str(tmp_path))
    store.put_new("leases/000001.json", b"")
    strays = (".DS_Store", "leases/.DS_Store", "leases/._000001.json", ".Trash-0/files/000002.json", "leases/.tmp-half")
    for stray in strays:
        (tmp_path / stray).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / stray).write_bytes(b"stray")
    assert store.list("") == store.list("leases") == ["leases/000001.json"]
    assert [seen.key for seen in store.seen("")] == ["leases/000001.json"]


@pytest.mark.parametrize("key", ["{}", "../beside", "runs/../../beside"])
def test_no_key_leads_out_of_a_folder(tmp_path: Path, key: str) -> None:
    beside, store = tmp_path / "beside", LocalStore(tmp_path / "store")
    beside.write_text("somebody's")
    key = key.format(beside)
    for ask in (store.get, store.age_s, store.list, store.delete, store.uri):
        with pytest.raises(StoreError, match="leads out of the store"):
            ask(key)
    for write in (store.put, store.put_new):
        with pytest.raises(StoreError, match="leads out of the store"):
            write(key, b"ours")
    assert beside.read_text() == "somebody's"


def test_a_wrong_address_and_a_folder_that_cannot_be_written_are_a_sentence(tmp_path: Path) -> None:
    for url in ("s3://", "azure://bucket/x"):
        with pytest.raises(StoreError, match="s3://bucket/prefix"):
            open_store(url)
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(StoreError, match="can't write"):
        open_store(str(tmp_path / "file")).put_new("key", b"")


def test_a_server_that_is_not_there_is_a_sentence(s3_environment: pytest.MonkeyPatch) -> None:
    s3_environment.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    s3_environment.setenv("SPECSWEEP_STORE_AWAY_S", "0")
    with pytest.raises(StoreAway, match="AWS_ENDPOINT_URL"):
        open_store("s3://bucket").put_new("key", b"")


@pytest.mark.parametrize(("number", "away"), [(errno.ESTALE, True), (errno.EIO, True), (errno.EACCES, False)])
def test_a_silent_folder_is_not_empty(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, away: bool) -> None:
    store = LocalStore(tmp_path)
    store.put("leases/1.json", b"held")

    def broken(path: object, *_: object, **__: object) -> object:
        raise OSError(number, os.strerror(number), str(path))

    monkeypatch.setattr(os, "scandir", broken)
    monkeypatch.setattr(Path, "read_bytes", broken)
    monkeypatch.setattr(os, "fsync", broken)
    for ask in (
        lambda: store.list("leases"),
        lambda: [*store.seen("leases")],
        lambda: store.get("leases/1.json"),
        lambda: store.put_new("leases/2.json", b"mine"),
    ):
        with pytest.raises(StoreError, match=os.strerror(number)) as said:
            ask()
        assert isinstance(said.value, StoreAway) == away


def test_a_shared_folder_is_waited_for_and_silence_counts_from_its_return(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("warehouse.ledger.store.protocol.TOLD_AFTER_S", 0.0)
    store = open_store(str(tmp_path))
    store.put("leases/1.json", b"held")
    then = time.time() - 100
    os.utime(tmp_path / "leases/1.json", (then, then))
    assert store.silence_s("leases/1.json") == pytest.approx(100, abs=10)
    real, troubles = Path.stat, [errno.ESTALE] * 2

    def stat(path: Path, **kinds: bool) -> os.stat_result:
        if troubles and path.name == "1.json":
            raise OSError(troubles.pop(), "stale", str(path))
        return real(path, **kinds)

    monkeypatch.setattr(Path, "stat", stat)
    (seen,) = store.seen("leases")
    assert not troubles and seen.silence_s >= 99, "its first answer is of before"
    (seen,) = store.seen("leases")
    assert seen.silence_s < 50 and (store.silence_s("leases/1.json") or 99) < 50
    assert (store.age_s("leases/1.json") or 0) >= 99
    said = capfd.readouterr().err.splitlines()
    assert [word for line in said for word in ("is away", "is back") if word in line] == ["is away", "is back"]


LEFT = ["000002 (copy).json", "000009.json~", "000009", "notes.txt", "notes.json", "9.backup.json", "-9.json", "٩.json"]


@pytest.mark.parametrize("left", LEFT)
def test_what_is_left_beside_numbered_objects_is_none_of_them(tmp_path: Path, left: str) -> None:
    ledger = Ledger(open_store(str(tmp_path)), "old")
    key = write_graded_run(ledger).cell.cell_key
    leases, placements = Leases(ledger, key), Placements(ledger, key)
    rent(ledger, key, 0, 10, 100)
    close(ledger, key, 1, 10, 90)
    Claims(ledger, key).take("elsewhere/boot/1/1", "pulse")
    lease = leases.acquire("elsewhere/boot/1/2")
    write_regrade(ledger, key, "eval-gpqa", 0, Grading({}, "ok", (), 9), None)
    manifest = publish(ledger.store)

    folders = {path.parent for path in tmp_path.rglob("*.json") if path.stem.split(".")[0].isdigit()}
    assert {folder.name for folder in folders} == set("attempts flows leases manifests placements regrades".split())
    for folder in folders:
        (folder / left).write_bytes(b"stray")

    assert current(ledger.store) == manifest
    assert leases.current() == lease and [each.attempt for each in leases.attempts()] == [1]
    assert [story.asked.number for story in placements.stories()] == [1] and placements.open() is None
    with pytest.raises(ManagedElsewhere, match="managed by the flow elsewhere/boot/1/1"):
        Claims(ledger, key).take("another/boot/1/1")
    kept = ledger.store.list(f"{ledger.step_root(key, 'eval-gpqa')}/regrades")
    assert newest(kept) == {(key, "eval-gpqa"): 1}
    assert len(publish(ledger.store).files) == len(PRODUCT_TABLES) + 1


def test_s3s_own_condition_would_overwrite_here(google: type[FakeGoogle]) -> None:
    store = open_store("gs://sweeps/x")
    for body in (b"first", b"second"):
        store._client.put_object(Bucket="sweeps", Key="x/key", Body=body, IfNoneMatch="*")  # type: ignore[attr-defined]
    assert store.get("key") == b"second"
    assert not store.put_new("key", b"third")


def test_any_key_can_be_signed(google: type[FakeGoogle]) -> None:
    store = open_store("gs://sweeps/team a/x")
    for key in ("plain.json", "with space/and+plus", "percent%41", "ümlaut~(1)'!*"):
        assert store.put_new(key, key.encode())
        assert store.get(key) == key.encode()
    assert len(google.objects) == 4


def test_a_busy_server_is_asked_again_and_a_try_that_landed_counts(google: type[FakeGoogle]) -> None:
    store = open_store("gs://sweeps/x")
    google.failures += [503, 429]
    assert store.put_new("key", b"mine")
    assert store.put_new("key", b"mine") and not store.put_new("key", b"other")


def test_a_wrong_key_or_none_is_a_sentence(google: type[FakeGoogle], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GS_SECRET_ACCESS_KEY", "another")
    with pytest.raises(StoreError, match=r"can't write gs://sweeps/x/key: 403 .*SignatureDoesNotMatch"):
        open_store("gs://sweeps/x").put_new("key", b"")
    monkeypatch.delenv("GS_ACCESS_KEY_ID")
    with pytest.raises(StoreError, match="set GS_ACCESS_KEY_ID and GS_SECRET_ACCESS_KEY"):
        open_store("gs://bucket/prefix")


def test_polars_is_told_to_read_through_the_same_api(google: type[FakeGoogle]) -> None:
    store = open_store("gs://sweeps/x")
    assert (store.url, store.uri("a.parquet")) == ("gs://sweeps/x", "s3://sweeps/x/a.parquet")
    options = store.storage_options or {}
    assert options["aws_endpoint_url"].startswith("http://127.0.0.1:")
    assert options["aws_access_key_id"] == "GOOGTESTKEY"
