"""A flow whose store is away: what runs goes on, and what happened meanwhile is recorded later."""

from __future__ import annotations

import io
import logging
import threading
from pathlib import Path
from uuid import uuid4

import httpx
import pytest
from rich.console import Console

from flows.cell import CellOutcome, measure_cell
from flows.clock import StoppableClock
from flows.flow_heartbeat import FlowHeartbeatSender, HeldCells
from flows.sweep import measure_all, publish_results
from flows.terminal.progress import RunWatcher
from tests.fake_cloud import FakeCluster, FakeSite, context
from tests.fake_run import FakeRun
from tests.warehouse.ledger.store.conftest import BUCKET, S3Server
from warehouse.ledger.store import StoreAway, StoreError


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


@pytest.mark.slow(15)
@pytest.mark.parametrize("s3_server", ["ministack"], indirect=True)
@pytest.mark.parametrize("when", ["at work", "when it is down"])
def test_no_node_is_taken_down_for_it_and_its_records_are_written_later(
    tmp_path: Path, node_python: Path, s3_server: S3Server, monkeypatch: pytest.MonkeyPatch, when: str
) -> None:
    monkeypatch.setenv("SPECSWEEP_STORE_AWAY_S", "1")  # of the flow
    run = FakeRun(tmp_path, store_url=f"s3://{BUCKET}/team/a")

    class Node(FakeCluster):
        def down(self) -> None:
            super().down()
            if when == "when it is down":
                s3_server.kill()

    node = Node(run, node_python, FAKE_ENGINE_TOKEN_S="0.004", SPECSWEEP_STORE_AWAY_S="120")
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
    assert run.ends() == ["done"]


def test_no_error_ends_a_flow_s_heartbeat_nor_its_run(run: FakeRun, monkeypatch: pytest.MonkeyPatch) -> None:
    beat, heard, told = HeldCells.beat, threading.Event(), list[str]()
    troubles: list[Exception] = []

    def troubled(cells: HeldCells) -> None:
        if troubles:
            raise troubles.pop()
        beat(cells)
        if told:
            heard.set()

    monkeypatch.setattr(HeldCells, "beat", troubled)
    monkeypatch.setattr("flows.flow_heartbeat.BEAT_EVERY_S", 0.01)
    with FlowHeartbeatSender(run.ledger, told.append) as heartbeat, heartbeat.managing(run.key):
        troubles += [ValueError("odd"), StoreError("refused"), StoreAway("away")]
        assert heard.wait(60)
    assert [line.rpartition(" ")[2] for line in told] == ["away", "refused", "odd"]


def test_what_is_measured_is_published_when_the_store_is_back(run: FakeRun, monkeypatch: pytest.MonkeyPatch) -> None:
    put, away = run.ledger.store.put, ["once", "twice"]

    def put_when_there(key: str, data: bytes) -> None:
        if away:
            raise StoreAway(away.pop())
        put(key, data)

    monkeypatch.setattr(run.ledger.store, "put", put_when_there)
    monkeypatch.setattr("flows.sweep.AWAY_POLL_S", 0.0)
    for name in ("create_table_artifact", "create_link_artifact"):
        monkeypatch.setattr(f"flows.sweep.{name}", lambda **_: None)
    assert publish_results.fn(run.ledger.store, "r1").endswith("report.html")
    assert away == []


@pytest.mark.parametrize("is_terminal", [True, False])
def test_who_watches_a_run_does_not_end_it(run: FakeRun, monkeypatch: pytest.MonkeyPatch, is_terminal: bool) -> None:
    plan = run.ledger.plan()
    real, looks, console = run.ledger.store.list, [0], Console(file=io.StringIO(), force_terminal=is_terminal)

    def ended() -> bool:
        looks[0] += 1
        return looks[0] == 4

    def listed(prefix: str) -> list[str]:
        if looks[0] < 3:
            raise StoreAway("nobody answers")
        return real(prefix)

    monkeypatch.setattr(run.ledger.store, "list", listed)
    monkeypatch.setattr("flows.terminal.progress.POLL_S", 0.0)
    progress = RunWatcher(run.ledger, plan, console).watch(ended)
    assert (looks[0], progress.measured) == (4, 0)
    assert isinstance(console.file, io.StringIO) and console.file.getvalue().count("can't see how the run stands") == 1


def test_a_bar_that_prefect_does_not_take_stops_no_cell(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def away(**_: object) -> None:
        raise httpx.ConnectError("All connection attempts failed")

    run = FakeRun(tmp_path, "ar ngram")
    monkeypatch.setattr("flows.sweep.create_progress_artifact", lambda **_: uuid4())
    monkeypatch.setattr("flows.sweep.update_progress_artifact", away)
    monkeypatch.setattr("flows.sweep.get_run_logger", lambda: logging.getLogger("flow"))
    monkeypatch.setattr(
        "flows.sweep._measured_or_failed",
        lambda ledger, planned, *_: CellOutcome(planned.cell.cell_key, planned.cell.label, "measured", "", 1),
    )
    with caplog.at_level(logging.INFO, "flow"):
        outcomes = measure_all(run.ledger, run.ledger.plan())
    assert [outcome.ended for outcome in outcomes] == ["measured", "measured"]
    assert "the progress bar is not told: ConnectError: All connection attempts failed" in caplog.text
