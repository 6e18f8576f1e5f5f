"""Which flow manages a cell: claims on a real store."""

import os
import time
from pathlib import Path

import pytest

from flows.flow_heartbeat import CellTaken, HeldCell, HeldCells
from tests.warehouse.ledger.test_ledger import elsewhere, ended_process
from warehouse.ledger.claims import FLOW_DEADLINE_S, Claims, FlowHeartbeat, ManagedElsewhere, beat
from warehouse.ledger.clock import Clock
from warehouse.ledger.commits import Ledger
from warehouse.ledger.owner import owner_name
from warehouse.ledger.store import StoreAway, StoreError, open_store
from warehouse.ledger.store.local import LocalStore

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


def test_a_cell_that_is_taken_again_is_not_released_by_a_word_that_was_left(
    ledger: Ledger, clock: JumpingClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    cells, claims = HeldCells(ledger, print), Claims(ledger, KEY)
    with monkeypatch.context() as broken, cells.managing(KEY):
        broken.setattr(ledger.store, "put", refuse)
    clock.slept_s = FLOW_DEADLINE_S
    with cells.managing(KEY):
        cells.beat()
        assert claims.manager() == owner_name()
    assert claims.manager() is None
