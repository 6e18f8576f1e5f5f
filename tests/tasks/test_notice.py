"""The cloud's notice, and the flow's heartbeat: a machine that is taken back or that nobody looks after ends itself."""

import asyncio
import os
import signal
import socket
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from flows.cell import measure_cell
from flows.clusters.protocol import CellJob, Ending, Launch
from flows.clusters.skypilot.carried import LOG, timer_command
from tasks.host.time_to_live import TimeToLive, renew
from tasks.notice import TIME_TO_LIVE_VARIABLE, Metadata, Notice, Unanswered, heed, keep_alive
from tests.busy_machine import PATIENCE_S
from tests.fake_cloud import FakeCluster, FakeSite, children, context, offer
from tests.fake_metadata import BROKEN, EC2, GOOGLE, TERMINATE, FakeMetadata, metadata_of
from tests.fake_run import FakeRun, ended
from tests.tasks.test_cell import wait_until
from warehouse.ledger.claims import Claims, beat
from warehouse.ledger.commits import Commit
from warehouse.ledger.lease import Attempt
from warehouse.ledger.outcomes import Ended
from warehouse.ledger.placement import Placements

SLOW = {"FAKE_ENGINE_TOKEN_S": "0.004"}
STEPS = ("smoke", "throughput", "parity", "eval-tiny")
NOW = "2026-11-23T09:00:00+00:00"


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
        self, run: FakeRun, node_python: Path, metadata: FakeMetadata
    ) -> None:
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
        timed = run.rows("throughput", "windows")
        identities = Counter((row["condition"], row["mode"], row["repeat"], row["attempt"]) for row in timed)
        assert set(identities.values()) == {1}

    def test_the_cell_is_free_before_the_engine_has_stopped(self, run: FakeRun, node_python: Path) -> None:
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
    def test_where_nobody_answers_the_cell_is_measured_all_the_same(self, run: FakeRun, node_python: Path) -> None:
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
    def test_a_notice_that_is_written_meanwhile_stands(self, run: FakeRun, node_python: Path) -> None:
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

    def committed(self, commit: Commit) -> None:
        if commit.step == "throughput":
            self.metadata.notice = True


class TestMetadata:
    async def test_a_recommendation_to_leave_is_told_once_and_not_followed(self) -> None:
        told, notices = list[str](), list[str]()
        with metadata_of(EC2) as metadata:
            metadata.rebalance = True
            asking = asyncio.create_task(heed(metadata.url, 0.01, notices.append, told.append))
            while not told or len(metadata.asked) < 12:
                await asyncio.sleep(0.01)
            assert not asking.done()
            metadata.notice = True
            await asking
        [risk] = told
        assert risk.startswith("EC2 recommends to rebalance") and "goes on" in risk
        assert notices == [f"EC2 says instance-action {TERMINATE}"]

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
            Metadata("http://127.0.0.1:9").look()  # port 9 (discard): nobody listens there


LONGEST_S = 3600.0


@pytest.mark.parametrize(
    ("told", "left_s"),
    [
        ((b"3600",), 3600.0),
        ((b"9000000",), 3600.0),
        ((b"600",), 2600.0),
        ((b"-1", b"nan", b"", b"\xff for ever"), 2600.0),
        ((b"inf",), 3600.0),
    ],
    ids=["renewed", "never for longer", "never shortened", "what is no number says nothing", "nor without end"],
)
def test_a_renewal_lengthens_a_machines_life_and_never_beyond_its_bound(told: tuple[bytes, ...], left_s: float) -> None:
    life = TimeToLive(LONGEST_S, now_s=0.0)
    for words in told:
        life.told(words, now_s=1000.0)
    assert life.left_s(now_s=1000.0) == left_s


def test_what_a_first_boot_runs_powers_the_machine_off_when_nobody_renews_it(tmp_path: Path) -> None:
    """The very line that SkyPilot hands to cloud-init, with a timer address and a `shutdown` of the test's own."""
    address, off = "timer", tmp_path / "off"  # a file, as no argument can begin as an abstract name does
    shutdown = tmp_path / "shutdown"
    shutdown.write_text(f'#!/bin/sh\necho "$@" >{off}.new && mv {off}.new {off}\n')
    shutdown.chmod(0o755)
    line = timer_command(1.0).replace(LOG, f"{tmp_path}/log").replace(" 1 >", f" 1 {address} >")
    assert address in line and line.endswith("&")
    env = {"PATH": f"{tmp_path}:{os.environ['PATH']}"}
    asked = ["sh", "-c", f"{line}\necho $!"]
    script = subprocess.run(asked, cwd=tmp_path, env=env, capture_output=True, text=True, check=True)
    try:
        deadline = time.monotonic() + PATIENCE_S
        while not off.exists():
            assert time.monotonic() < deadline, (tmp_path / "log").read_text()
            time.sleep(0.05)
        assert off.read_text().split() == ["-P", "now"]
        assert (tmp_path / address).is_socket(), "it stays behind"
    finally:
        os.kill(int(script.stdout), 9)


class Door:
    """Notes what the machine's timer is told."""

    def __init__(self) -> None:
        self.told: list[float] = []

    def renew(self, left_s: float) -> bool:
        self.told.append(left_s)
        return True


def looked(run: FakeRun, door: Door, looks: int) -> list[str]:
    """What a node runner says while it looks at its flow: so often, or until the machine's timer was told something."""
    said: list[str] = []
    begun = 0

    class Counted(Claims):
        def age_s(self) -> float | None:
            nonlocal begun
            begun += 1
            return super().age_s()

    async def until_enough() -> None:
        task = asyncio.create_task(keep_alive(Counted(run.ledger, run.key), said.append, door.renew))
        while begun <= looks and not door.told and not task.done():
            await asyncio.sleep(0.01)
        task.cancel()

    asyncio.run(asyncio.wait_for(until_enough(), PATIENCE_S))
    return said


def heard(run: FakeRun, age_s: float = 0.0, *, released: bool = False) -> None:
    """The flow's last heartbeat, so many seconds ago by the store's clock."""
    claims = Claims(run.ledger, run.key)
    claim = claims.take("elsewhere/boot/1/1", "pulse")
    beat(run.ledger, "pulse")
    if released:
        claims.release(claim)
    then = time.time() - age_s
    for path in Path(run.ledger.store.uri(run.ledger.root)).rglob("flows/*.json"):
        os.utime(path, (then, then))


def test_a_machine_lives_as_long_as_its_flow_is_heard_of(run: FakeRun, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(TIME_TO_LIVE_VARIABLE, "0.06")
    door = Door()
    for age_s, released in ((600.0, False), (0.0, True)):
        heard(run, age_s, released=released)
        looked(run, door, looks=2)
    assert not door.told, "silent for too long, or it has let go of the cell"
    monkeypatch.setenv(TIME_TO_LIVE_VARIABLE, str(LONGEST_S))
    heard(run, 600.0)
    looked(run, door, looks=1)
    assert 2900 < door.told[0] < 3001, "its seconds count from the flow's last heartbeat"


def test_neither_a_store_that_was_away_nor_an_odd_error_decides(run: FakeRun, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(TIME_TO_LIVE_VARIABLE, str(LONGEST_S))
    monkeypatch.setattr("tasks.notice.ANXIOUS_S", 0.01)
    heard(run, 600.0)
    door, real, troubles = Door(), run.ledger.store.get, [ValueError("a field that we don't know")]

    def get(key: str) -> bytes | None:
        if troubles:
            raise troubles.pop()
        return real(key)

    monkeypatch.setattr(run.ledger.store, "get", get)
    monkeypatch.setattr(run.ledger.store, "silence_s", lambda key: 1.0)  # since it is back
    said = looked(run, door, looks=3)
    assert ["a field that we don't know" in line for line in said] == [True]
    assert 2900 < door.told[0] < 3001


def test_a_machine_without_a_timer_says_so_once_and_measures(run: FakeRun, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(TIME_TO_LIVE_VARIABLE, str(LONGEST_S))
    heard(run)
    door = Door()
    monkeypatch.setattr(door, "renew", lambda left_s: renew(left_s, f"\0specsweep-nobody-{os.getpid()}"))
    assert ["has no timer" in line for line in looked(run, door, looks=1)] == [True]


def test_the_runners_word_reaches_the_timer() -> None:
    address = f"\0specsweep-door-{os.getpid()}"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as door:
        door.bind(address)
        program = f"from tasks.host.time_to_live import renew; assert renew(12.5, {address!r})"
        subprocess.run([sys.executable, "-c", program], check=True)
        assert float(door.recv(64)) == 12.5
