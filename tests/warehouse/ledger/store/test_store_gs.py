"""Google Cloud Storage: what its dialect asks of the one conditional write, and what a user is told without a key."""

from __future__ import annotations

import pytest

from tests.warehouse.ledger.store.fake_google import FakeGoogle
from warehouse.ledger.store import StoreError, open_store


def test_s3s_own_condition_would_overwrite_here(google: type[FakeGoogle]) -> None:
    store = open_store("gs://sweeps/x")
    store._client.put_object(Bucket="sweeps", Key="x/key", Body=b"first", IfNoneMatch="*")  # type: ignore[attr-defined]
    store._client.put_object(Bucket="sweeps", Key="x/key", Body=b"second", IfNoneMatch="*")  # type: ignore[attr-defined]
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


def test_a_wrong_key_is_a_sentence(google: type[FakeGoogle], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GS_SECRET_ACCESS_KEY", "another")
    with pytest.raises(StoreError, match=r"can't write gs://sweeps/x/key: 403 .*SignatureDoesNotMatch"):
        open_store("gs://sweeps/x").put_new("key", b"")


def test_without_a_key_it_says_which_variables_to_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("GS_ACCESS_KEY_ID", raising=False)
    with pytest.raises(StoreError, match="set GS_ACCESS_KEY_ID and GS_SECRET_ACCESS_KEY"):
        open_store("gs://bucket/prefix")


def test_polars_is_told_to_read_through_the_same_api(google: type[FakeGoogle]) -> None:
    store = open_store("gs://sweeps/x")
    assert (store.url, store.uri("a.parquet")) == ("gs://sweeps/x", "s3://sweeps/x/a.parquet")
    options = store.storage_options or {}
    assert options["aws_endpoint_url"].startswith("http://127.0.0.1:")
    assert options["aws_access_key_id"] == "GOOGTESTKEY"
