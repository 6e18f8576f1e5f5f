"""The cloud's notice, read by the real node runner from a real HTTP service; the engine is the fake one."""

from __future__ import annotations

import asyncio
import os
import signal
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from flows.cell import measure_cell
from flows.clusters.protocol import CellJob, Ending, Launch
from tasks.notice import Metadata, Notice, Unanswered, heed
from tests.fake_cloud import FakeCluster, FakeSite, children, context, offer
from tests.fake_metadata import BROKEN, EC2, GOOGLE, TERMINATE, FakeMetadata, metadata_of
from tests.fake_run import FakeRun, ended
from tests.tasks.test_cell import wait_until
from warehouse.ledger.lease import Attempt
from warehouse.ledger.outcomes import Ended
from warehouse.ledger.placement import Placements

SLOW = {"FAKE_ENGINE_TOKEN_S": "0.004"}
STEPS = ("smoke", "throughput", "parity", "eval-tiny")
NOW = "2026-11-23T09:00:00+00:00"
NOBODY = "http://127.0.0.1:9"
"""Port 9 (discard): nobody listens there."""


@pytest.fixture(params=[EC2, GOOGLE])
def metadata(request: pytest.FixtureRequest) -> Iterator[FakeMetadata]:
    with metadata_of(request.param) as service:
        yield service


def asking(url: str) -> tuple[str, ...]:
    return ("--metadata", url, "--heartbeat-s", "0.2")


def windows(run: FakeRun) -> list[str]:
    root = run.ledger.step_root(run.key, "throughput")
    return [key for key in run.ledger.store.list(f"{root}/parts") if "/windows-" in key]


class TestRunner:
    @pytest.mark.slow(14)
    def test_a_notice_in_a_step_ends_the_attempt_with_what_is_finished_and_the_next_goes_on(
        self, tmp_path: Path, node_python: Path, metadata: FakeMetadata
    ) -> None:
        run = FakeRun(tmp_path)
        runner = run.start(node_python, arguments=asking(metadata.url), **SLOW)
        wait_until(lambda: bool(windows(run)), "a finished window")
        metadata.notice = True
        code, said = ended(runner)
        assert code == Ended.NOTICE.exit_code, said
        (first,) = run.attempts()
        assert (first.outcome, first.exit_code) == ("notice", code)
        assert metadata.cloud == GOOGLE or first.reason == f"EC2 says instance-action {TERMINATE}"
        assert first.reason in said and said.index("[stopping]") > 0
        kept = windows(run)

        metadata.notice = False  # another machine
        run.measured(node_python, arguments=asking(metadata.url))
        assert [attempt.outcome for attempt in run.attempts()] == ["notice", "completed"]
        assert run.commit("smoke").attempt == 1, "what was committed is not measured again"
        assert all(run.commit(step).attempt == 2 for step in STEPS[1:])
        committed = [part.key for part in run.commit("throughput").parts]
        assert set(kept) <= set(committed), "what was stored before the notice is in the commit"
        identities = Counter(
            (row["condition"], row["mode"], row["repeat"], row["attempt"]) for row in run.rows("throughput", "windows")
        )
        assert set(identities.values()) == {1}

    def test_the_cell_is_free_before_the_engine_has_stopped(self, tmp_path: Path, node_python: Path) -> None:
        run = FakeRun(tmp_path)
        with metadata_of(EC2) as metadata:
            runner = run.start(node_python, "deaf", asking(metadata.url), **SLOW)
            wait_until(lambda: bool(windows(run)), "a finished window")
            metadata.notice = True
            wait_until(lambda: bool(run.attempts()), "the attempt's row")
        engine = children(runner.pid)
        assert engine and runner.poll() is None, "the engine was asked to stop, and is still there"
        for pid in engine:
            os.kill(pid, signal.SIGKILL)
        assert ended(runner)[0] == Ended.NOTICE.exit_code

    @pytest.mark.slow(13)
    def test_where_nobody_answers_the_cell_is_measured_all_the_same(self, tmp_path: Path, node_python: Path) -> None:
        run = FakeRun(tmp_path)
        with metadata_of(BROKEN) as metadata:
            said = run.measured(node_python, arguments=asking(metadata.url))
        assert said.count("no cloud's metadata at") == 1, said
        assert len(metadata.asked) > 2, "it is asked again, should it come to itself"
        assert [attempt.outcome for attempt in run.attempts()] == ["completed"]


class TestFlow:
    @pytest.mark.slow(11)
    def test_a_machine_with_a_notice_is_replaced_at_once(self, tmp_path: Path, node_python: Path) -> None:
        run, said = FakeRun(tmp_path), list[str]()
        with metadata_of(EC2) as metadata:
            first, second = Announced(run, node_python, metadata), FakeCluster(run, node_python)
            site = FakeSite([first, second], [Launch(offer("east-1a")), Launch(offer("east-1b"))])
            outcome = measure_cell(run.ledger, run.planned, context(run, site, said.append), first.committed)
        assert (outcome.ended, outcome.attempts) == ("measured", 2)
        stories = Placements(run.ledger, run.key).stories()
        assert [story.end and story.end.outcome for story in stories] == ["notice", "done"]
        assert [attempt.outcome for attempt in run.attempts()] == ["notice", "completed"]
        assert site.memory == [("east-1a", "notice"), ("east-1b", None)]
        assert [need.losses for need in site.needs] == [0, 1]
        assert all(cluster.is_down for cluster in site.handed)
        assert any("notice: EC2 says instance-action" in line for line in said)
        assert run.commit("throughput").attempt == 1

    @pytest.mark.slow(9)
    def test_a_notice_that_is_written_while_its_cluster_is_asked_stands(
        self, tmp_path: Path, node_python: Path
    ) -> None:
        run = FakeRun(tmp_path)
        site = FakeSite([LeftMeanwhile(run, node_python), FakeCluster(run, node_python)])
        assert measure_cell(run.ledger, run.planned, context(run, site), lambda _: None).ended == "measured"
        ends = [story.end for story in Placements(run.ledger, run.key).stories()]
        assert next((end.outcome, end.detail) for end in ends if end) == ("notice", "EC2 says so")


class LeftMeanwhile(FakeCluster):
    """A node whose runner leaves with a notice after its records were read, and before its cluster is asked."""

    def launch(self, job: CellJob) -> None:
        self.lease = self.run.leases.acquire("elsewhere/boot/1/1")

    def look(self, heard_s: float | None, *, insist: bool = False) -> Ending | None:
        if insist:
            return Ending(None, Ended.JOB_FAILED, "SkyPilot says FAILED")
        row = Attempt(attempt=self.lease.epoch, outcome="notice", exit_code=77, reason="EC2 says so", ended_at=NOW)
        self.run.leases.close(row)
        return None


class Announced(FakeCluster):
    """A node whose cloud says, once its throughput is committed, that it takes it back."""

    def __init__(self, run: FakeRun, python: Path, metadata: FakeMetadata) -> None:
        super().__init__(run, python)
        self.metadata = metadata

    def launch(self, job: CellJob) -> None:
        self.process = self.run.start(self.python, arguments=asking(self.metadata.url), **SLOW)

    def committed(self, step: str) -> None:
        if step == "throughput":
            self.metadata.notice = True


async def heeded(metadata: FakeMetadata) -> list[str]:
    """What is told while the machine is only at risk, and then has its notice."""
    told, notices = list[str](), list[str]()
    asking = asyncio.create_task(heed(metadata.url, 0.01, notices.append, told.append))
    while len(told) == 0 or len(metadata.asked) < 12:
        await asyncio.sleep(0.01)
    assert not asking.done()
    metadata.notice = True
    await asking
    return [*told, *notices]


class TestMetadata:
    def test_a_recommendation_to_leave_is_told_once_and_not_followed(self) -> None:
        with metadata_of(EC2) as metadata:
            metadata.rebalance = True
            risk, notice = asyncio.run(heeded(metadata))
        assert risk.startswith("EC2 recommends to rebalance") and "goes on" in risk
        assert notice == f"EC2 says instance-action {TERMINATE}"

    def test_a_token_that_has_expired_is_asked_for_again(self) -> None:
        with metadata_of(EC2) as service:
            metadata = Metadata(service.url)
            assert metadata.look() is None
            service.token = "second"
            with pytest.raises(Unanswered, match="401"):
                metadata.look()
            service.notice = True
            assert metadata.look() == Notice(f"EC2 says instance-action {TERMINATE}", is_certain=True)

    def test_the_cloud_that_answered_is_the_only_one_asked(self, metadata: FakeMetadata) -> None:
        reader = Metadata(metadata.url)
        reader.look()
        metadata.asked.clear()
        reader.look()
        assert all(("computeMetadata" in path) == (metadata.cloud == GOOGLE) for path in metadata.asked)

    def test_nobody_there_is_said_with_its_reason(self) -> None:
        with pytest.raises(Unanswered, match="refused"):
            Metadata(NOBODY).look()
