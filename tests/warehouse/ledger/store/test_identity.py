"""A store's id: one, whoever asks first and whatever way leads there; another one for another store, and for a copy."""

import re
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tasks.outbox import outbox_folder
from tests.warehouse.ledger.store.fake_google import copy_all, twin_stores
from warehouse.ledger.runs import run_ids
from warehouse.ledger.store import Store, open_store
from warehouse.ledger.store.identity import KEY, known_id, store_id


def test_a_store_has_one_id_however_many_ask_first(store: Store) -> None:
    assert known_id(store) is None and store.list("") == [], "asking alone makes none"
    with ThreadPoolExecutor(8) as pool:
        found = set(pool.map(lambda _: store_id(store), range(8)))
    assert found == {known_id(open_store(store.url))}
    assert re.fullmatch("[a-z2-7]{24}", found.pop()), "in digits that names and labels of every cloud take"
    assert run_ids(store) == []


@pytest.mark.parametrize("is_copied", [False, True])
def test_two_stores_of_one_bucket_name_at_two_endpoints_are_two(
    tmp_path: Path, s3_environment: pytest.MonkeyPatch, is_copied: bool
) -> None:
    with twin_stores(s3_environment) as (mine, theirs):
        first = store_id(mine)
        if is_copied:
            copy_all(mine, theirs)
        assert mine.url == theirs.url
        assert store_id(theirs) != first == store_id(mine)
        assert outbox_folder(tmp_path, mine) != outbox_folder(tmp_path, theirs), "neither gets the other's letters"


def test_a_folder_is_one_store_by_any_name_and_its_copy_and_its_successor_are_others(tmp_path: Path) -> None:
    folder, link = tmp_path / "store", tmp_path / "link"
    store, copy = open_store(str(folder)), open_store(str(tmp_path / "copy"))
    first = store_id(store)
    link.symlink_to(folder)
    assert store_id(open_store(str(link))) == store_id(open_store(f"{link}/../store")) == first
    copy_all(store, copy)
    folder.rename(tmp_path / "old")
    assert len({first, store_id(copy), store_id(store)}) == 3


def test_amazons_endpoints_lead_to_one_place(s3_environment: pytest.MonkeyPatch) -> None:
    bucket = open_store("s3://results/x").location
    for endpoint, is_same in (("https://s3.eu-west-1.amazonaws.com", True), ("https://s3.example.com", False)):
        s3_environment.setenv("AWS_ENDPOINT_URL", endpoint)
        assert (open_store("s3://results/x").location == bucket) == is_same


@pytest.mark.parametrize("damaged", [b"", b'{"id": ', b"\xff\xfe"])
def test_a_damaged_identity_is_one_that_stays(local: Store, damaged: bytes) -> None:
    local.put(KEY, damaged)
    assert store_id(local) == store_id(local) == known_id(local)
