"""A flow whose store is away: what runs goes on, and what happened meanwhile is recorded later."""

from __future__ import annotations

from pathlib import Path

import pytest

from flows.cell import measure_cell
from flows.clock import StoppableClock
from flows.flow_heartbeat import FlowHeartbeatSender
from tests.fake_cloud import FakeCluster, FakeSite, context
from tests.fake_run import FakeRun
from tests.warehouse.store.conftest import BUCKET, S3Server
from warehouse.placement import Placements


class Restarter(StoppableClock):
    """The flow's clock; a server that is down is started again when the flow has found it away a few times."""

    def __init__(self, server: S3Server) -> None:
        super().__init__()
        self.server, self.found_away = server, 0

    def sleep(self, seconds: float) -> None:
        if self.server.process is not None and self.server.process.poll() is not None:
            self.found_away += 1
            if self.found_away == 3:
                self.server.start()
        super().sleep(seconds)


class LastWordsLost(FakeCluster):
    """The store is away from the moment in which this node is down."""

    server: S3Server

    def down(self) -> None:
        super().down()
        self.server.kill()


@pytest.mark.slow
@pytest.mark.parametrize("s3_server", ["ministack"], indirect=True)
@pytest.mark.parametrize("when", ["at work", "when it is down"])
def test_no_node_is_taken_down_for_it_and_its_records_are_written_later(
    tmp_path: Path, node_python: Path, s3_server: S3Server, monkeypatch: pytest.MonkeyPatch, when: str
) -> None:
    monkeypatch.setenv("SPECSWEEP_STORE_AWAY_S", "1")  # of the flow
    run = FakeRun(tmp_path, store_url=f"s3://{BUCKET}/team/a")
    kind = FakeCluster if when == "at work" else LastWordsLost
    node = kind(run, node_python, FAKE_ENGINE_TOKEN_S="0.004", SPECSWEEP_STORE_AWAY_S="120")
    node.server = s3_server  # type: ignore[attr-defined]
    clock = Restarter(s3_server)

    def committed(step: str) -> None:
        if step == "throughput" and when == "at work":
            s3_server.kill()

    with FlowHeartbeatSender(run.ledger, print) as heartbeat:
        shared = context(run, FakeSite([node]), clock=clock, managing=heartbeat.managing)
        outcome = measure_cell(run.ledger, run.planned, shared, committed)
    assert clock.found_away >= 3
    assert (outcome.ended, outcome.attempts) == ("measured", 1)
    assert [attempt.outcome for attempt in run.attempts()] == ["completed"]
    (story,) = Placements(run.ledger, run.key).stories()
    assert story.end is not None and story.end.outcome == "done"
