"""A flow that slept (a laptop's lid) while another one took its cell over: it leaves cluster and records alone."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from flows.attempt import AttemptRun
from flows.clock import FlowStopped
from flows.clusters.protocol import CellJob, Ending, LaunchFailed
from flows.flow_heartbeat import CellTaken, FlowHeartbeatSender
from tests.fake_cloud import FakeCluster, FakeSite, context, offer
from tests.fake_run import FakeRun
from tests.warehouse.test_ledger import elsewhere
from warehouse.clock import Clock
from warehouse.ledger import Ledger
from warehouse.managing.claims import FLOW_DEADLINE_S, Claims
from warehouse.placement import Placements


class Lid(Clock):
    """This machine's clock, on which time passes while it sleeps."""

    slept_s = 0.0

    def now_s(self) -> float:
        return super().now_s() + self.slept_s


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


@pytest.mark.parametrize("error", [LaunchFailed("its request is gone"), FlowStopped("Ctrl-C")], ids=["fails", "ends"])
def test_a_launch_that_ends_badly_leaves_it_to_the_other_flow_too(tmp_path: Path, error: Exception) -> None:
    run, lid = FakeRun(tmp_path), Lid()
    node = Refused(run, Path("no-python"))
    node.lid, node.comes, node.error = lid, elsewhere("another"), error
    ledger = Ledger(run.ledger.store, "r1", lid)
    with FlowHeartbeatSender(ledger, print) as heartbeat, heartbeat.managing(run.key):
        shared = context(run, FakeSite([node]), require_held=heartbeat.require_held)
        attempt = AttemptRun(ledger, run.planned, shared, offer())
        with pytest.raises((CellTaken, FlowStopped)):
            attempt.run(lambda looked: None)
    assert not node.is_down and Placements(ledger, run.key).stories()[-1].end is None


def test_a_flow_that_slept_while_it_waited_rents_nothing(tmp_path: Path) -> None:
    run, lid = FakeRun(tmp_path), Lid()
    ledger = Ledger(run.ledger.store, "r1", lid)
    with FlowHeartbeatSender(ledger, print) as heartbeat, heartbeat.managing(run.key):
        shared = context(run, FakeSite([Sleeper(run, Path("no-python"))]), require_held=heartbeat.require_held)
        attempt = AttemptRun(ledger, run.planned, shared, offer())
        asleep(run, lid)
        Claims(run.ledger, run.key).take(elsewhere("another"))
        with pytest.raises(CellTaken):
            attempt.run(lambda looked: None)
    assert Placements(ledger, run.key).stories() == []


@pytest.mark.parametrize("comes", [elsewhere("another"), None])
def test_what_another_flow_took_over_is_left_to_it_and_what_nobody_took_is_still_ours(
    tmp_path: Path, comes: str | None
) -> None:
    run, lid = FakeRun(tmp_path), Lid()
    node = Sleeper(run, Path("no-python"))
    node.lid, node.comes = lid, comes
    ledger = Ledger(run.ledger.store, "r1", lid)
    with FlowHeartbeatSender(ledger, print) as heartbeat, heartbeat.managing(run.key):
        shared = context(run, FakeSite([node]), require_held=heartbeat.require_held)
        attempt = AttemptRun(ledger, run.planned, shared, offer())
        if comes is None:
            assert attempt.run(lambda: None).detail == "its own look"
        else:
            with pytest.raises(CellTaken):
                attempt.run(lambda: None)
    assert node.is_down is (comes is None)
    story = Placements(ledger, run.key).stories()[-1]
    assert (story.end is None) is (comes is not None)
    assert Claims(ledger, run.key).manager() == comes, "a release of the one that slept would free it"
