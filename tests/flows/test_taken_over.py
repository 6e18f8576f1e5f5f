"""A flow that slept (a laptop's lid) while another one took its cell over: it leaves cluster and records alone."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from flows.attempt import TAKEN_WITHIN_S, AttemptRun
from flows.clock import FlowStopped
from flows.clusters.protocol import CellJob, Ending, LaunchFailed
from flows.flow_heartbeat import CellTaken, FlowHeartbeatSender
from tests.fake_cloud import FakeCluster, FakeSite, JumpingClock, context, offer
from tests.fake_run import FakeRun
from tests.warehouse.ledger.test_ledger import elsewhere
from warehouse.dataset.bill import is_free
from warehouse.ledger.claims import FLOW_DEADLINE_S, Claims
from warehouse.ledger.clock import Clock
from warehouse.ledger.commits import Ledger
from warehouse.ledger.lease import Attempt
from warehouse.ledger.outcomes import Ended
from warehouse.ledger.placement import MachineEnd, Placements


class Lid(Clock):
    """This machine's clock, on which time passes while it sleeps."""

    slept_s = 0.0

    def now_s(self) -> float:
        return super().now_s() + self.slept_s


@pytest.fixture
def lid() -> Lid:
    return Lid()


def asleep(run: FakeRun, lid: Lid) -> None:
    """Nothing was heard for longer than a flow may be silent."""
    lid.slept_s = FLOW_DEADLINE_S + 1
    then = time.time() - lid.slept_s
    for path in Path(run.ledger.store.uri(run.ledger.root)).rglob("flows/*.json"):
        os.utime(path, (then, then))


class Sleeper(FakeCluster):
    """A machine during whose launch the flow sleeps, and another one comes if there is any."""

    lid: Lid
    comes: str | None

    def launch(self, job: CellJob) -> None:
        asleep(self.run, self.lid)
        if self.comes is not None:
            Claims(self.run.ledger, self.run.key).take(self.comes)

    def look(self, heard_s: float | None, *, insist: bool = False) -> Ending | None:
        return Ending.of_runner(1, "its own look")


class Refused(Sleeper):
    """One whose launch fails when it wakes, or whose user ends the flow then."""

    error: Exception

    def launch(self, job: CellJob) -> None:
        super().launch(job)
        raise self.error


@contextmanager
def held(run: FakeRun, lid: Lid, node: FakeCluster) -> Iterator[AttemptRun]:
    ledger = Ledger(run.ledger.store, "r1", lid)
    with FlowHeartbeatSender(ledger, print) as heartbeat, heartbeat.managing(run.key):
        shared = context(run, FakeSite([node]), require_held=heartbeat.require_held)
        yield AttemptRun(ledger, run.planned, shared, offer())


@pytest.mark.parametrize("error", [LaunchFailed("its request is gone"), FlowStopped("Ctrl-C")], ids=["fails", "ends"])
def test_a_launch_that_ends_badly_leaves_it_to_the_other_flow_too(run: FakeRun, lid: Lid, error: Exception) -> None:
    node = Refused(run, Path("no-python"))
    node.lid, node.comes, node.error = lid, elsewhere("another"), error
    with held(run, lid, node) as attempt, pytest.raises((CellTaken, FlowStopped)):
        attempt.run(lambda looked: None)
    assert not node.is_down and Placements(run.ledger, run.key).stories()[-1].end is None


def test_a_flow_that_slept_while_it_waited_rents_nothing(run: FakeRun, lid: Lid) -> None:
    with held(run, lid, Sleeper(run, Path("no-python"))) as attempt:
        asleep(run, lid)
        Claims(run.ledger, run.key).take(elsewhere("another"))
        with pytest.raises(CellTaken):
            attempt.run(lambda looked: None)
    assert Placements(run.ledger, run.key).stories() == []


@pytest.mark.parametrize("comes", [elsewhere("another"), None])
def test_what_another_flow_took_over_is_left_to_it_and_what_nobody_took_is_still_ours(
    run: FakeRun, lid: Lid, comes: str | None
) -> None:
    node = Sleeper(run, Path("no-python"))
    node.lid, node.comes = lid, comes
    with held(run, lid, node) as attempt:
        if comes is None:
            assert attempt.run(lambda: None).detail == "its own look"
        else:
            with pytest.raises(CellTaken):
                attempt.run(lambda: None)
    assert node.is_down is (comes is None)
    story = Placements(run.ledger, run.key).stories()[-1]
    assert (story.end is None) is (comes is not None)
    assert Claims(Ledger(run.ledger.store, "r1", lid), run.key).manager() == comes, (
        "a release of the one that slept would free it"
    )


NOTICE_S = 120.0
NEVER_S = 1e6


class EndedClock(JumpingClock):
    def __init__(self, stopped_after_s: float = NEVER_S) -> None:
        super().__init__()
        self.stopped_after_s = stopped_after_s

    @property
    def passed_s(self) -> float:
        return self.at_s - self.begun_s

    def sleep(self, seconds: float) -> None:
        super().sleep(seconds)
        if self.passed_s >= self.stopped_after_s:
            self.stop("Ctrl-C")
        self.require_going()


class Noticed(FakeCluster):
    """A machine whose runner leaves with a notice at some age; its cloud takes it so much later."""

    def __init__(self, run: FakeRun, clock: EndedClock, age_s: float, taken_after_s: float) -> None:
        super().__init__(run, Path("no-python"))
        self.clock, self.age_s, self.taken_after_s = clock, age_s, taken_after_s
        self.down_after_s: float | None = None

    def launch(self, job: CellJob) -> None:
        self.clock.at_s += self.age_s
        lease = self.run.leases.acquire(elsewhere("node"))
        now = self.run.ledger.clock.now_iso()
        self.run.leases.close(Attempt(attempt=lease.epoch, outcome="notice", exit_code=77, ended_at=now))

    def look(self, heard_s: float | None, *, insist: bool = False) -> Ending | None:
        return None

    def down(self) -> None:
        self.down_after_s = self.down_after_s or self.clock.passed_s - self.age_s

    def machine_end(self, since_s: float) -> MachineEnd | None:
        if self.clock.passed_s - self.age_s >= self.taken_after_s:
            return MachineEnd(interrupted=True)
        return None if self.down_after_s is None else MachineEnd(self.clock.now_s())


@pytest.mark.parametrize(
    ("cloud", "spot", "age_s", "taken_after_s", "stopped_after_s", "down_after_s", "free"),
    [
        pytest.param("aws", True, 2400, NOTICE_S, NEVER_S, NOTICE_S, True, id="EC2 takes it, and charges nothing"),
        pytest.param("aws", True, 2400, NEVER_S, NEVER_S, TAKEN_WITHIN_S, False, id="the notice was wrong"),
        pytest.param("aws", True, 2400, NOTICE_S, 30, 30, False, id="the flow ends first"),
        pytest.param("aws", True, 3590, NOTICE_S, NEVER_S, 0, False, id="it is charged all the same"),
        pytest.param("aws", False, 2400, NOTICE_S, NEVER_S, 0, False, id="no spot machine"),
        pytest.param("gcp", True, 2400, NOTICE_S, NEVER_S, 0, False, id="a cloud that charges"),
    ],
)
def test_a_noticed_machine_is_left_to_its_cloud_where_that_makes_it_free(
    run: FakeRun,
    cloud: str,
    spot: bool,
    age_s: float,
    taken_after_s: float,
    stopped_after_s: float,
    down_after_s: float,
    free: bool,
) -> None:
    clock = EndedClock(age_s + stopped_after_s)
    node = Noticed(run, clock, age_s, taken_after_s)
    where = offer(spot=spot).model_copy(update={"cloud": cloud})
    attempt = AttemptRun(run.ledger, run.planned, context(run, FakeSite([node]), clock=clock, poll_s=3.0), where)
    assert attempt.run(lambda _: None).how is Ended.NOTICE
    assert node.down_after_s is not None and node.down_after_s == pytest.approx(down_after_s, abs=3.0)
    [story] = Placements(run.ledger, run.key).stories()
    assert story.end is not None and story.end.outcome == "notice"
    assert is_free(story) is free


def test_a_flow_that_slept_while_it_waited_leaves_the_machine_to_the_one_that_took_it_over(run: FakeRun) -> None:
    clock = EndedClock()
    node = Noticed(run, clock, 2400, NEVER_S)

    def require_held(cell_key: str) -> None:
        if clock.passed_s > 2400 + NOTICE_S:
            raise CellTaken(cell_key)

    hands = context(run, FakeSite([node]), clock=clock, require_held=require_held)
    attempt = AttemptRun(run.ledger, run.planned, hands, offer().model_copy(update={"cloud": "aws"}))
    with pytest.raises(CellTaken):
        attempt.run(lambda _: None)
    assert node.down_after_s is None and Placements(run.ledger, run.key).open() is not None
