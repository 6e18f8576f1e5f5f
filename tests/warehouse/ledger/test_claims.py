"""Which flow manages a cell: claims on a real store."""

import os
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier

import pytest

from flows.flow_heartbeat import CellTaken, HeldCell, HeldCells
from tests.warehouse.ledger.test_ledger import elsewhere, ended_process
from tests.warehouse.rented import StandingClock
from warehouse.ledger.claims import FLOW_DEADLINE_S, Claims, FlowHeartbeat, ManagedElsewhere, beat
from warehouse.ledger.clock import Clock
from warehouse.ledger.commits import Ledger
from warehouse.ledger.lease import Heartbeat, Leases
from warehouse.ledger.looks import SharedLook
from warehouse.ledger.owner import owner_name
from warehouse.ledger.store import StoreAway, StoreError, open_store
from warehouse.ledger.store.local import LocalStore
from warehouse.ledger.store.protocol import Seen

KEY = "c" * 16


class JumpingClock(Clock):
    """This machine's, which may sleep."""

    slept_s = 0.0

    def now_s(self) -> float:
        return super().now_s() + self.slept_s


@pytest.fixture
def clock() -> JumpingClock:
    return JumpingClock()


@pytest.fixture
def ledger(tmp_path: Path, clock: JumpingClock) -> Ledger:
    return Ledger(open_store(str(tmp_path)), "r1", clock)


def silence(claims: Claims, seconds: float = FLOW_DEADLINE_S + 1) -> None:
    """All that was said so far is this much older, by the store's clock."""
    then = time.time() - seconds
    for path in Path(claims.store.uri("")).rglob("*.json"):
        os.utime(path, (then, then))


def test_a_claim_is_kept_until_its_flow_is_silent(ledger: Ledger) -> None:
    claims = Claims(ledger, KEY)
    first = claims.take(elsewhere("a"), "pulse")
    with pytest.raises(ManagedElsewhere, match=elsewhere("a")):
        claims.take(elsewhere("b"))
    silence(claims)
    beat(ledger, "pulse")
    assert claims.manager() == elsewhere("a")
    silence(claims)
    assert claims.manager() is None
    assert claims.take(elsewhere("b")).epoch == 2
    with pytest.raises(ManagedElsewhere, match=elsewhere("b")):
        claims.renew(first, first.granted_at)
    assert claims.spans()[0].began_at == first.granted_at


def test_a_released_cell_and_a_dead_flows_are_free_at_once(ledger: Ledger) -> None:
    claims = Claims(ledger, KEY)
    claims.release(claims.take(elsewhere("a")))
    claims.take(ended_process())
    assert claims.manager() is None
    assert claims.take(elsewhere("c")).epoch == 3


def test_a_flow_of_an_earlier_version_that_beats_keeps_its_cell(ledger: Ledger) -> None:
    claims = Claims(ledger, KEY)
    said = FlowHeartbeat(owner="host/boot/1/1", at="2026-11-20T10:00:00.000+00:00")
    ledger.store.put(f"{claims.root}/flow.json", said.model_dump_json(exclude={"epoch"}).encode())
    assert claims.manager() == "host/boot/1/1"
    silence(claims)
    assert claims.take(elsewhere("b")).heard_at == said.at


def test_a_flow_that_slept_leaves_the_cell_to_the_one_that_took_it_over(ledger: Ledger, clock: JumpingClock) -> None:
    mine, claims = HeldCell(ledger, KEY, "pulse"), Claims(ledger, KEY)
    clock.slept_s = FLOW_DEADLINE_S + 1
    mine.require()  # late, and nobody came
    clock.slept_s *= 2
    silence(claims)
    theirs = claims.take(elsewhere("b"))
    mine.heard(clock.now_s())
    mine.release()
    assert claims.manager() == elsewhere("b"), "their word stands"
    with pytest.raises(CellTaken, match="another flow has taken it over"):
        mine.require()
    assert owner_name() != theirs.owner


def test_a_release_that_arrives_late_hides_nobody(ledger: Ledger) -> None:
    claims = Claims(ledger, KEY)
    gone = claims.take(elsewhere("a"), "first")
    silence(claims)
    theirs = claims.take(elsewhere("b"), "second")
    claims.release(gone)
    silence(claims)
    beat(ledger, "second")
    assert claims.manager() == elsewhere("b")
    claims.release(theirs)
    assert claims.manager() is None and claims.age_s() is None


def test_one_heartbeat_speaks_for_all_cells_of_a_flow(ledger: Ledger) -> None:
    cells, claims = HeldCells(ledger, print), [Claims(ledger, key * 16) for key in "cde"]
    with cells.managing("c" * 16), cells.managing("d" * 16):
        with cells.managing("e" * 16):
            pass
        for each in claims:
            silence(each)
        assert [each.manager() for each in claims] == [None] * 3
        before = stored(ledger)
        cells.beat()
        after = stored(ledger)
        assert len(after) == len(before) + 1 and before.items() <= after.items(), "one object, whatever it holds"
        assert [each.manager() for each in claims] == [owner_name(), owner_name(), None]
        assert [each.age_s() is None for each in claims] == [False, False, True]
    assert [each.manager() for each in claims] == [None] * 3


def stored(ledger: Ledger) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in Path(ledger.store.uri("")).rglob("*.json")}


def refuse(key: str, data: bytes) -> None:
    raise StoreError("refused")


def test_a_release_that_the_store_did_not_take_is_made_good(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    claims, told = Claims(ledger, "d" * 16), list[str]()
    cells = HeldCells(ledger, told.append)
    with cells.managing(KEY):
        with monkeypatch.context() as broken, cells.managing("d" * 16):
            broken.setattr(ledger.store, "put", refuse)
        assert told == ["other flows wait 120 s for this one's cell: refused"]
        assert claims.manager() == owner_name()
        cells.beat()
        assert claims.manager() is None


class Unheard(LocalStore):
    """A FAKE store that creates the next claim, and whose answer is lost for longer than its patience."""

    is_next = False

    def put_new(self, key: str, data: bytes) -> bool:
        created, lost = super().put_new(key, data), self.is_next
        self.is_next = False
        if lost:
            raise StoreAway("patience is over")
        return created


def test_a_claim_whose_answer_was_lost_is_still_ours(tmp_path: Path) -> None:
    clock, store = JumpingClock(), Unheard(tmp_path)
    ledger = Ledger(store, "r1", clock)
    cells, claims = HeldCells(ledger, print), Claims(ledger, KEY)
    store.is_next = True
    with pytest.raises(StoreAway), cells.managing(KEY):
        pass
    assert claims.manager() == owner_name(), "it was stored"
    with cells.managing(KEY):
        clock.slept_s, store.is_next = FLOW_DEADLINE_S, True
        with pytest.raises(StoreAway):
            cells.require(KEY)
        cells.beat()
        cells.require(KEY)
        with pytest.raises(ManagedElsewhere, match=owner_name()):
            claims.take(owner_name(), "another flow of this process")
    assert claims.manager() is None


def test_a_word_left_over_frees_no_cell(ledger: Ledger, clock: JumpingClock, monkeypatch: pytest.MonkeyPatch) -> None:
    cells, claims = HeldCells(ledger, print), Claims(ledger, KEY)
    with monkeypatch.context() as broken, cells.managing(KEY):
        broken.setattr(ledger.store, "put", refuse)
    clock.slept_s = FLOW_DEADLINE_S
    with cells.managing(KEY):
        cells.beat()
        assert claims.manager() == owner_name()
    assert claims.manager() is None


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


@pytest.fixture
def counted(tmp_path: Path) -> CountingStore:
    return CountingStore(tmp_path)


@pytest.fixture
def standing() -> StandingClock:
    return StandingClock()


@pytest.fixture
def looked(counted: CountingStore, standing: StandingClock) -> Ledger:
    return Ledger(counted, "r1", standing)


def leased(looked: Ledger, keys: list[str]) -> None:
    for key in keys:
        Leases(looked, key).acquire("elsewhere/boot/1/1")
        Leases(looked, key).beat(Heartbeat(attempt=1, phase="measuring", at=""))
    looked.store.asked.clear()  # type: ignore[attr-defined]


def test_250_threads_that_look_at_once_ask_for_one_listing(counted: CountingStore, looked: Ledger) -> None:
    leased(looked, CELLS)
    look, all_there = SharedLook(looked), Barrier(len(CELLS))

    def epoch_of(key: str) -> int | None:
        all_there.wait()
        lease = Leases(look.at(15), key).current()
        return None if lease is None else lease.epoch

    with ThreadPoolExecutor(len(CELLS)) as pool:
        assert list(pool.map(epoch_of, CELLS)) == [1] * len(CELLS)
    assert counted.asked == {"list run": 1, "get": len(CELLS)}


def test_a_body_is_fetched_when_it_has_changed(counted: CountingStore, looked: Ledger, standing: StandingClock) -> None:
    leased(looked, ["a"])
    look = SharedLook(looked)
    for _ in range(10):
        standing.s += 30
        lease = Leases(look.at(15), "a").current()
        assert lease is not None and not Leases(look.at(15), "a").is_free(lease)
    assert counted.asked == {"list run": 10, "get": 1}, "who waits for a heartbeat needs its age, not its words"
    heartbeats = []
    for percent in (0.0, 0.0, 50.0):
        standing.s += 30
        if percent:
            Leases(looked, "a").beat(Heartbeat(attempt=1, phase="", percent=percent, at=""))
        heartbeats.append(Leases(look.at(15), "a").heartbeat())
    assert [beat.percent for beat in heartbeats if beat] == [0.0, 0.0, 50.0]
    assert counted.asked["get"] == 3


def test_what_is_shown_is_no_older_than_asked_and_new_words_are_seen(looked: Ledger, standing: StandingClock) -> None:
    leased(looked, ["a", "b"])
    look = SharedLook(looked)
    assert look.at(15).committed_steps(look.at(15).store.list("runs/r1/cells/a")) == {}
    commit = looked.new_commit("smoke", 1, "me", "ok", [], 1.0, [])
    looked.commit("a", commit)
    standing.s += 15
    assert look.at(15).read_commit("a", "smoke") is None
    assert look.at(14).read_commit("a", "smoke") == commit
    assert look.at(15).read_commit("b", "smoke") is None


def test_few_who_look_often_list_their_own_cells_of_a_large_run(
    counted: CountingStore, looked: Ledger, standing: StandingClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("warehouse.ledger.looks.PAGE_KEYS", 50)
    leased(looked, CELLS)
    look = SharedLook(looked)
    for key in CELLS:
        Leases(look.at(15), key).current()
    counted.asked.clear()
    for _ in range(4):
        standing.s += 3
        assert Leases(look.at(1.5), CELLS[7]).current() is not None
    assert counted.asked == {"list cell": 4}
    standing.s += 5
    for key in CELLS:
        Leases(look.at(15), key).current()
    assert counted.asked == {"list cell": 4, "list run": 1}, "all are due: one listing for them"


def test_a_store_that_is_away_is_away_for_all_who_wait_and_asked_again(counted: CountingStore, looked: Ledger) -> None:
    leased(looked, ["a"])
    counted.away, look = 1, SharedLook(looked)
    with pytest.raises(StoreAway):
        Leases(look.at(15), "a").current()
    assert Leases(look.at(15), "a").current() is not None


def test_rows_and_other_runs_are_read_off_the_store_itself(counted: CountingStore, looked: Ledger) -> None:
    leased(looked, ["a"])
    counted.put("runs/r1/cells/a/steps/smoke/parts/rows-0001-x.parquet", b"rows")
    counted.put("runs/r2/cells/a/heartbeat.json", b"{}")
    shown = SharedLook(looked).at(15).store
    assert shown.list("runs/r1/cells/a/steps/smoke/parts") == ["runs/r1/cells/a/steps/smoke/parts/rows-0001-x.parquet"]
    assert shown.get("runs/r1/cells/a/steps/smoke/parts/rows-0001-x.parquet") == b"rows"
    assert shown.list("runs/r2/cells") == ["runs/r2/cells/a/heartbeat.json"]
    assert "steps" not in "".join(shown.list("runs/r1/cells/a"))


def test_a_listing_for_one_is_one_for_all(counted: CountingStore, looked: Ledger, standing: StandingClock) -> None:
    leased(looked, CELLS)
    look = SharedLook(looked)
    keys, age_s = look.keys(30.0)
    assert sorted(keys) == [key for key in counted.list(look.root) if "/parts/" not in key] and age_s == 0
    for cell in CELLS:
        look.at(20.0).store.get(f"{looked.cell_root(cell)}/heartbeat.json")
    standing.s += 20
    assert look.keys(30.0) == (keys, 20.0)
    assert counted.asked["list run"] == 1 and not counted.asked["list cell"]
    counted.put(f"{looked.cell_root(CELLS[0])}/placements/000001.json", b"{}")
    standing.s += 11
    newer, age_s = look.keys(30.0)
    assert set(newer) > set(keys) and age_s == 0 and counted.asked["list run"] == 2
