"""What people leave in a store's folders beside our numbered objects is not taken for one."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.graded_run import write_graded_run
from tests.warehouse.rented import close, rent
from warehouse.dataset.snapshot import current, publish
from warehouse.dataset.tables import PRODUCT_TABLES
from warehouse.ledger.claims import Claims, ManagedElsewhere
from warehouse.ledger.commits import Ledger
from warehouse.ledger.lease import Leases
from warehouse.ledger.placement import Placements
from warehouse.ledger.regrades import Grading, newest, write_regrade
from warehouse.ledger.store import open_store

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
    assert {folder.name for folder in folders} == {
        "attempts", "flows", "leases", "manifests", "placements", "regrades"
    }  # fmt: skip
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
