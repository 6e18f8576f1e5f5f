"""A store's id: one, whoever asks first; another one at another endpoint or address; and what a node keeps by it."""

import re
import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tasks.outbox import outbox_folder
from tests.warehouse.ledger.store.fake_google import twin_stores
from warehouse.ledger.runs import run_ids
from warehouse.ledger.store import Store, open_store
from warehouse.ledger.store.identity import known_id, store_id


def test_a_store_has_one_id_however_many_ask_first(store: Store) -> None:
    assert known_id(store) is None and store.list("") == [], "asking alone makes none"
    with ThreadPoolExecutor(8) as pool:
        found = set(pool.map(lambda _: store_id(store), range(8)))
    assert found == {known_id(open_store(store.url))}
    assert re.fullmatch("[a-z2-7]{24}", found.pop()), "in digits that names and labels of every cloud take"
    assert run_ids(store) == []


def test_two_stores_of_one_bucket_name_at_two_endpoints_are_two(
    tmp_path: Path, s3_environment: pytest.MonkeyPatch
) -> None:
    with twin_stores(s3_environment) as (mine, theirs):
        assert mine.url == theirs.url
        assert store_id(mine) != store_id(theirs)
        assert outbox_folder(tmp_path, mine) != outbox_folder(tmp_path, theirs), "neither gets the other's letters"
        assert outbox_folder(tmp_path, mine) == outbox_folder(tmp_path, mine)


def test_a_copy_of_a_store_is_another_store(local: Store, tmp_path: Path) -> None:
    first = store_id(local)
    shutil.copytree(local.url, tmp_path / "copy")
    assert store_id(open_store(str(tmp_path / "copy"))) != first == store_id(local)
