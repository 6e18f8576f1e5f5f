"""A flow that is away from what it manages, or whose store is away.

One that slept (a laptop's lid) while another one took its cell over leaves cluster and records alone. While the store
is away what runs goes on, and what happened meanwhile is recorded later.
"""

from __future__ import annotations

import io
import logging
import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from itertools import chain, repeat
from pathlib import Path
from unittest.mock import DEFAULT, Mock
from uuid import uuid4

import httpx
import pytest
from rich.console import Console

from flows.attempt import TAKEN_WITHIN_S, AttemptRun
from flows.cell import CellOutcome, measure_cell
from flows.clock import FlowStopped, StoppableClock
from flows.clusters.protocol import CellJob, Ending, LaunchFailed
from flows.flow_heartbeat import CellTaken, HeldCells
from flows.sweep import measure_all, publish_results
from flows.terminal.progress import RunWatcher
from tests.busy_machine import PATIENCE_S
from tests.fake_cloud import FakeCluster, FakeSite, JumpingClock, context, offer
from tests.fake_run import FakeRun
from tests.warehouse.ledger.store.conftest import BUCKET, S3Server
from tests.warehouse.ledger.test_ledger import elsewhere
from warehouse.dataset.bill import is_free
from warehouse.ledger.claims import FLOW_DEADLINE_S, Claims
from warehouse.ledger.clock import Clock
from warehouse.ledger.commits import Commit, Ledger
from warehouse.ledger.lease import Attempt
from warehouse.ledger.outcomes import Ended
from warehouse.ledger.placement import MachineEnd
from warehouse.ledger.store import StoreAway, StoreError


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
    """A machine during whose launch the flow sleeps, and another one comes; then it may fail."""

    comes: str | None = elsewhere("another")
    error: Exception | None = None

    def __init__(self, run: FakeRun) -> None:
        super().__init__(run)
        self.lid = Lid()

    def launch(self, job: CellJob) -> None:
        asleep(self.run, self.lid)
        if self.comes is not None:
            Claims(self.run.ledger, self.run.key).take(self.comes)
        if self.error is not None:
            raise self.error

    def look(self, heard_s: float | None, *, insist: bool = False) -> Ending | None:
        return Ending.of_runner(1, "its own look")


@contextmanager
def held(run: FakeRun, node: Sleeper) -> Iterator[AttemptRun]:
    ledger = Ledger(run.ledger.store, "r1", node.lid)
    with HeldCells(ledger, print) as heartbeat, heartbeat.managing(run.key):
        shared = context(run, FakeSite([node]), require_held=heartbeat.require)
        yield AttemptRun(ledger, run.planned, shared, offer())


@pytest.mark.parametrize("error", [LaunchFailed("its request is gone"), FlowStopped("Ctrl-C")], ids=["fails", "ends"])
def test_a_launch_that_ends_badly_leaves_it_to_the_other_flow_too(run: FakeRun, error: Exception) -> None:
    node = Sleeper(run)
    node.error = error
    with held(run, node) as attempt, pytest.raises((CellTaken, FlowStopped)):
        attempt.run(lambda looked: None)
    assert not node.is_down and run.placements.stories()[-1].end is None


def test_a_flow_that_slept_while_it_waited_rents_nothing(run: FakeRun) -> None:
    node = Sleeper(run)
    with held(run, node) as attempt:
        asleep(run, node.lid)
        Claims(run.ledger, run.key).take(elsewhere("another"))
        with pytest.raises(CellTaken):
            attempt.run(lambda looked: None)
    assert run.placements.stories() == []


@pytest.mark.parametrize("comes", [elsewhere("another"), None])
def test_what_another_flow_took_over_is_left_to_it_and_what_nobody_took_is_still_ours(
    run: FakeRun, comes: str | None
) -> None:
    node = Sleeper(run)
    node.comes = comes
    with held(run, node) as attempt, nullcontext() if comes is None else pytest.raises(CellTaken):
        assert attempt.run(lambda: None).detail == "its own look"
    assert node.is_down is (comes is None) is (run.story().end is not None)
    manager = Claims(Ledger(run.ledger.store, "r1", node.lid), run.key).manager()
    assert manager == comes, "a release of the one that slept would free it"


NOTICE_S = 120.0
NEVER_S = 1e6


class EndedClock(JumpingClock):
    """One that may be stopped in one of its pauses."""

    stopped_after_s = NEVER_S

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

    down_after_s: float | None = None

    def __init__(self, run: FakeRun, age_s: float = 2400, taken_after_s: float = NEVER_S) -> None:
        super().__init__(run)
        self.clock, self.age_s, self.taken_after_s = EndedClock(), age_s, taken_after_s

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
    ("where", "age_s", "taken_after_s", "stopped_after_s", "down_after_s"),
    [
        pytest.param("aws spot", 2400, NOTICE_S, NEVER_S, NOTICE_S, id="EC2 takes it, and charges nothing"),
        pytest.param("aws spot", 2400, NEVER_S, NEVER_S, TAKEN_WITHIN_S, id="the notice was wrong"),
        pytest.param("aws spot", 2400, NOTICE_S, 30, 30, id="the flow ends first"),
        pytest.param("aws spot", 3590, NOTICE_S, NEVER_S, 0, id="it is charged all the same"),
        pytest.param("aws on demand", 2400, NOTICE_S, NEVER_S, 0, id="no spot machine"),
        pytest.param("gcp spot", 2400, NOTICE_S, NEVER_S, 0, id="a cloud that charges"),
    ],
)
def test_a_noticed_machine_is_left_to_its_cloud_where_that_makes_it_free(
    run: FakeRun, where: str, age_s: float, taken_after_s: float, stopped_after_s: float, down_after_s: float
) -> None:
    node = Noticed(run, age_s, taken_after_s)
    node.clock.stopped_after_s = age_s + stopped_after_s
    rented = offer(spot="spot" in where).model_copy(update={"cloud": where[:3]})
    shared = context(run, FakeSite([node]), clock=node.clock, poll_s=3.0)
    assert AttemptRun(run.ledger, run.planned, shared, rented).run(lambda _: None).how is Ended.NOTICE
    assert node.down_after_s is not None and node.down_after_s == pytest.approx(down_after_s, abs=3.0)
    assert run.ends() == ["notice"] and is_free(run.story()) is (down_after_s == NOTICE_S)


def test_a_flow_that_slept_while_it_waited_leaves_the_machine_to_the_one_that_took_it_over(run: FakeRun) -> None:
    node = Noticed(run)

    def require_held(cell_key: str) -> None:
        if node.clock.passed_s > 2400 + NOTICE_S:
            raise CellTaken(cell_key)

    hands = context(run, FakeSite([node]), clock=node.clock, require_held=require_held)
    attempt = AttemptRun(run.ledger, run.planned, hands, offer().model_copy(update={"cloud": "aws"}))
    with pytest.raises(CellTaken):
        attempt.run(lambda _: None)
    assert node.down_after_s is None and run.placements.open() is not None


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

    def committed(commit: Commit) -> None:
        if commit.step == "throughput" and when == "at work":
            s3_server.kill()

    with HeldCells(run.ledger, print) as heartbeat:
        shared = context(run, FakeSite([node]), clock=clock, managing=heartbeat.managing)
        outcome = measure_cell(run.ledger, run.planned, shared, committed)
    assert clock.found_away >= 3 and (outcome.ended, outcome.attempts) == ("measured", 1)
    assert [attempt.outcome for attempt in run.attempts()] == ["completed"] and run.ends() == ["done"]


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
    with HeldCells(run.ledger, told.append) as heartbeat, heartbeat.managing(run.key):
        troubles += [ValueError("odd"), StoreError("refused"), StoreAway("away")]
        assert heard.wait(PATIENCE_S)
    assert [line.rpartition(" ")[2] for line in told] == ["away", "refused", "odd"]


def test_what_is_measured_is_published_when_the_store_is_back(run: FakeRun, monkeypatch: pytest.MonkeyPatch) -> None:
    put = Mock(wraps=run.ledger.store.put, side_effect=chain([StoreAway("once"), StoreAway("twice")], repeat(DEFAULT)))
    monkeypatch.setattr(run.ledger.store, "put", put)
    monkeypatch.setattr("flows.sweep.AWAY_POLL_S", 0.0)
    monkeypatch.setattr("flows.sweep.show_results", lambda *_: None)
    monkeypatch.setattr("flows.sweep.get_run_logger", lambda: logging.getLogger("flow"))
    assert publish_results.fn(run.ledger.store, "r1").endswith("report.html") and put.call_count > 2


@pytest.mark.parametrize("is_terminal", [True, False])
def test_who_watches_a_run_does_not_end_it(run: FakeRun, monkeypatch: pytest.MonkeyPatch, is_terminal: bool) -> None:
    plan = run.ledger.plan()
    real, console = run.ledger.store.list, Console(file=io.StringIO(), force_terminal=is_terminal)
    ended = Mock(side_effect=[False, False, False, True])

    def listed(prefix: str) -> list[str]:
        if ended.call_count < 3:
            raise StoreAway("nobody answers")
        return real(prefix)

    monkeypatch.setattr(run.ledger.store, "list", listed)
    monkeypatch.setattr("flows.terminal.progress.POLL_S", 0.0)
    progress = RunWatcher(run.ledger, plan, console).watch(ended)
    assert (ended.call_count, progress.measured) == (4, 0)
    assert isinstance(console.file, io.StringIO) and console.file.getvalue().count("can't see how the run stands") == 1


@pytest.mark.parametrize("asked", ["create", "update"])
def test_a_bar_that_prefect_does_not_take_stops_no_cell(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, asked: str
) -> None:
    away = Mock(side_effect=httpx.ConnectError("All connection attempts failed"))
    run = FakeRun(tmp_path, "ar ngram")
    monkeypatch.setattr("flows.prefect_view.create_progress_artifact", lambda *_, **__: uuid4())
    monkeypatch.setattr(f"flows.prefect_view.{asked}_progress_artifact", away)
    monkeypatch.setattr("flows.sweep.get_run_logger", lambda: logging.getLogger("flow"))
    monkeypatch.setattr(
        "flows.sweep._measured_or_failed",
        lambda ledger, planned, *_: CellOutcome(planned.cell.cell_key, planned.cell.label, "measured", "", 1),
    )
    with caplog.at_level(logging.INFO, "flow"):
        outcomes = measure_all(run.ledger, run.ledger.plan())
    assert [outcome.ended for outcome in outcomes] == ["measured", "measured"]
    assert "the progress bar is not told: ConnectError: All connection attempts failed" in caplog.text
