"""Many threads look at the cells of one run: what the store is asked, and that they are shown what is there."""

from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier

import pytest

from warehouse.ledger.clock import Clock
from warehouse.ledger.commits import Ledger
from warehouse.ledger.lease import Heartbeat, Leases
from warehouse.ledger.looks import SharedLook
from warehouse.ledger.store import StoreAway
from warehouse.ledger.store.local import LocalStore
from warehouse.ledger.store.protocol import Seen

CELLS = [f"cell{number:03d}" for number in range(250)]


class CountingStore(LocalStore):
    """Counts what is asked of a folder; `away` is how many listings it fails first."""

    away = 0

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.asked: Counter[str] = Counter()

    def get(self, key: str) -> bytes | None:
        self.asked["get"] += 1
        return super().get(key)

    def seen(self, prefix: str) -> Iterator[Seen]:
        self.asked["list run" if prefix.endswith("/cells") else "list cell"] += 1
        if self.away:
            self.away -= 1
            raise StoreAway("away")
        return super().seen(prefix)


class StandingClock(Clock):
    """Moves when it is told to."""

    moment_s = 1_800_000_000.0

    def now_s(self) -> float:
        return self.moment_s


@pytest.fixture
def store(tmp_path: Path) -> CountingStore:
    return CountingStore(tmp_path)


@pytest.fixture
def clock() -> StandingClock:
    return StandingClock()


@pytest.fixture
def ledger(store: CountingStore, clock: StandingClock) -> Ledger:
    return Ledger(store, "r1", clock)


def leased(ledger: Ledger, keys: list[str]) -> None:
    for key in keys:
        Leases(ledger, key).acquire("elsewhere/boot/1/1")
        Leases(ledger, key).beat(Heartbeat(attempt=1, phase="measuring", at=""))
    ledger.store.asked.clear()  # type: ignore[attr-defined]


def test_250_threads_that_look_at_once_ask_for_one_listing(store: CountingStore, ledger: Ledger) -> None:
    leased(ledger, CELLS)
    look, all_there = SharedLook(ledger), Barrier(len(CELLS))

    def epoch_of(key: str) -> int | None:
        all_there.wait()
        lease = Leases(look.at(15), key).current()
        return None if lease is None else lease.epoch

    with ThreadPoolExecutor(len(CELLS)) as pool:
        assert list(pool.map(epoch_of, CELLS)) == [1] * len(CELLS)
    assert store.asked == {"list run": 1, "get": len(CELLS)}


def test_a_body_is_fetched_again_only_when_it_has_changed(
    store: CountingStore, ledger: Ledger, clock: StandingClock
) -> None:
    leased(ledger, ["a"])
    look = SharedLook(ledger)
    for _ in range(10):
        clock.moment_s += 30
        lease = Leases(look.at(15), "a").current()
        assert lease is not None and not Leases(look.at(15), "a").is_free(lease)
    assert store.asked == {"list run": 10, "get": 1}, "who waits for a heartbeat needs its age, not its words"
    heartbeats = []
    for percent in (0.0, 0.0, 50.0):
        clock.moment_s += 30
        if percent:
            Leases(ledger, "a").beat(Heartbeat(attempt=1, phase="", percent=percent, at=""))
        heartbeats.append(Leases(look.at(15), "a").heartbeat())
    assert [beat.percent for beat in heartbeats if beat] == [0.0, 0.0, 50.0]
    assert store.asked["get"] == 3


def test_what_is_shown_is_no_older_than_asked_for_and_new_words_are_seen(ledger: Ledger, clock: StandingClock) -> None:
    leased(ledger, ["a", "b"])
    look = SharedLook(ledger)
    assert look.at(15).committed_steps(look.at(15).store.list("runs/r1/cells/a")) == {}
    commit = ledger.new_commit("smoke", 1, "me", "ok", [], 1.0, [])
    ledger.commit("a", commit)
    clock.moment_s += 15
    assert look.at(15).read_commit("a", "smoke") is None
    assert look.at(14).read_commit("a", "smoke") == commit
    assert look.at(15).read_commit("b", "smoke") is None


def test_few_who_look_often_list_their_own_cells_of_a_large_run(
    store: CountingStore, ledger: Ledger, clock: StandingClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("warehouse.ledger.looks.PAGE_KEYS", 50)
    leased(ledger, CELLS)
    look = SharedLook(ledger)
    for key in CELLS:
        Leases(look.at(15), key).current()
    store.asked.clear()
    for _ in range(4):
        clock.moment_s += 3
        assert Leases(look.at(1.5), CELLS[7]).current() is not None
    assert store.asked == {"list cell": 4}
    clock.moment_s += 5
    for key in CELLS:
        Leases(look.at(15), key).current()
    assert store.asked == {"list cell": 4, "list run": 1}, "all are due: one listing for them"


def test_a_store_that_is_away_is_away_for_all_who_wait_and_is_asked_again(store: CountingStore, ledger: Ledger) -> None:
    leased(ledger, ["a"])
    store.away, look = 1, SharedLook(ledger)
    with pytest.raises(StoreAway):
        Leases(look.at(15), "a").current()
    assert Leases(look.at(15), "a").current() is not None


def test_rows_and_other_runs_are_read_off_the_store_itself(store: CountingStore, ledger: Ledger) -> None:
    leased(ledger, ["a"])
    store.put("runs/r1/cells/a/steps/smoke/parts/rows-0001-x.parquet", b"rows")
    store.put("runs/r2/cells/a/heartbeat.json", b"{}")
    shown = SharedLook(ledger).at(15).store
    assert shown.list("runs/r1/cells/a/steps/smoke/parts") == ["runs/r1/cells/a/steps/smoke/parts/rows-0001-x.parquet"]
    assert shown.get("runs/r1/cells/a/steps/smoke/parts/rows-0001-x.parquet") == b"rows"
    assert shown.list("runs/r2/cells") == ["runs/r2/cells/a/heartbeat.json"]
    assert "steps" not in "".join(shown.list("runs/r1/cells/a"))


def test_a_listing_of_the_run_for_one_is_one_for_all(
    store: CountingStore, ledger: Ledger, clock: StandingClock
) -> None:
    leased(ledger, CELLS)
    look = SharedLook(ledger)
    keys, age_s = look.keys(30.0)
    assert sorted(keys) == [key for key in store.list(look.root) if "/parts/" not in key] and age_s == 0
    for cell in CELLS:
        look.at(20.0).store.get(f"{ledger.cell_root(cell)}/heartbeat.json")
    clock.moment_s += 20
    assert look.keys(30.0) == (keys, 20.0)
    assert store.asked["list run"] == 1 and not store.asked["list cell"]
    store.put(f"{ledger.cell_root(CELLS[0])}/placements/000001.json", b"{}")
    clock.moment_s += 11
    newer, age_s = look.keys(30.0)
    assert set(newer) > set(keys) and age_s == 0 and store.asked["list run"] == 2
