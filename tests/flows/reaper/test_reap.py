"""The reaper: a real EC2 control plane on loopback (moto) and a real store; SkyPilot is a fake at the edge.

The real SkyPilot's turn is in tests/cloud.
"""

from __future__ import annotations

import io
import os
import shutil
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import boto3
import pytest
from rich.console import Console

from flows.clusters.answers import MayYetCome
from flows.clusters.clouds.account import CLUSTER_TAG, CloudError, Instance, NotAsked, Sighting
from flows.clusters.clouds.aws import AwsAccount
from flows.clusters.clouds.gcp import GcpProject
from flows.clusters.protocol import LABEL, cluster_name, names_of_store
from flows.clusters.skypilot import api as sky_api
from flows.clusters.skypilot.api import Rented
from flows.clusters.skypilot.task_file import EXPIRY_LABEL, OWNER_LABEL
from flows.flow_heartbeat import HeldCells
from flows.reaper.found import Reaped, ReapReport
from flows.reaper.reap import SECOND_LOOK_S, reap_store
from flows.renting.expiry import RENEW_EVERY_S, ExpiryRenewer
from flows.terminal.prefect_session import our_environment
from tests.command_lines import run_python
from tests.fake_cloud import OFFER
from tests.fake_run import FakeRun
from tests.hanging_sky import hanging_sky
from tests.warehouse.ledger.store.conftest import KEYS, S3Server, make_server
from tests.warehouse.ledger.store.fake_google import copy_all, twin_stores
from warehouse.ledger.claims import FlowHeartbeat
from warehouse.ledger.commits import Ledger
from warehouse.ledger.lease import Heartbeat
from warehouse.ledger.owner import owner_name
from warehouse.ledger.placement import Placements
from warehouse.ledger.store import open_store
from warehouse.ledger.store.identity import store_id

ELSEWHERE = "some-other-host/0a1b2c3d/4711/99"
"""An owner that can't be asked whether it lives, so that only its silence tells."""

LONG_AGO = "2026-11-20T10:00:00.000+00:00"


class Ec2:
    def __init__(self, server: S3Server) -> None:
        self.url = server.url
        self.account = AwsAccount()
        self._clients: dict[str, Any] = {}

    def rent(self, name: str, region: str = "us-east-1", market: str = "spot", **labels: str) -> str:
        tag = f"{name}-12ab34cd"
        named = {"Name": tag, "ray-cluster-name": tag, CLUSTER_TAG: tag, **labels}
        tags = {"ResourceType": "instance", "Tags": [{"Key": key, "Value": value} for key, value in named.items()]}
        options = {"InstanceMarketOptions": {"MarketType": "spot"}} if market == "spot" else {}
        with self.client(region) as client:
            answer = client.run_instances(
                ImageId="ami-12c6146b", InstanceType="p5.4xlarge", MinCount=1, MaxCount=1, TagSpecifications=[tags],
                **options,
            )  # fmt: skip
        return str(answer["Instances"][0]["InstanceId"])

    def state(self, instance_id: str, region: str = "us-east-1") -> str:
        with self.client(region) as client:
            found = client.describe_instances(InstanceIds=[instance_id])["Reservations"][0]["Instances"][0]
        return str(found["State"]["Name"])

    def terminate(self, name: str, region: str = "us-east-1") -> None:
        """What SkyPilot does for `down`: terminate by tag, in the region it launched in; `*` stands for all."""
        filters = [{"Name": f"tag:{CLUSTER_TAG}", "Values": [f"{name}-12ab34cd"]}]
        with self.client(region) as client:
            for reservation in client.describe_instances(Filters=filters)["Reservations"]:
                client.terminate_instances(InstanceIds=[each["InstanceId"] for each in reservation["Instances"]])

    def protect(self, instance_id: str, *, on: bool) -> None:
        with self.client("us-east-1") as client:
            client.modify_instance_attribute(InstanceId=instance_id, DisableApiTermination={"Value": on})

    @contextmanager
    def client(self, region: str = "us-east-1") -> Iterator[Any]:
        """The control plane, whatever the test makes of this process's environment; its connections are closed."""
        if region not in self._clients:
            keys = {"aws_access_key_id": "x", "aws_secret_access_key": "y"}
            self._clients[region] = boto3.client("ec2", region_name=region, endpoint_url=self.url, **keys)
        try:
            yield self._clients[region]
        finally:
            self._clients[region].close()


class FakeSky:
    broken = ""

    def __init__(self, ec2: Ec2 | None = None) -> None:
        self.ec2 = ec2
        self.clusters: dict[str, Rented] = {}
        self.asked: list[tuple[str, bool]] = []

    def knows(self, name: str, status: str, launched_at_s: float | None = None) -> None:
        self.clusters[name] = Rented(
            name=name, status=status, launched_at_s=launched_at_s or time.time(), cloud="aws", region="us-east-1",
            zone="us-east-1a", spot=True, price_usd_h=2.25, name_on_cloud=f"{name}-12ab34cd", detail="",
        )  # fmt: skip

    def rented(self, names: list[str] | None = None, *, refresh: bool = False) -> list[Rented]:
        if self.broken == "gone":
            raise RuntimeError("the API server does not answer")
        return list(self.clusters.values())

    def take_down(self, name: str, *, purge: bool = False, is_ended: bool = False) -> bool:
        assert self.ec2 is not None, "there is nothing to take down"
        self.asked.append((name, purge))
        if self.broken and not purge:
            raise RuntimeError(self.broken)
        if not purge:
            self.ec2.terminate(name)
        return self.clusters.pop(name, None) is not None


class Scene:
    def __init__(self, folder: Path, ec2: Ec2) -> None:
        self.run = FakeRun(folder)
        self.store = self.run.ledger.store
        self.ec2, self.sky = ec2, FakeSky(ec2)
        self.accounts = [ec2.account]
        self.name = cluster_name(store_id(self.store), "r1", self.run.key)
        self.placements = self.run.placements
        self.meanwhile: Callable[[], object] = lambda: None  # what happens between the reaper's two looks
        self.paused_s: list[float] = []

    def ask(self) -> None:
        self.placements.ask(self.name, OFFER, ELSEWHERE, LONG_AGO)

    def rented(self, status: str | None = None) -> str:
        """The cell's machine, as its flow has rented it; its id. SkyPilot knows of it if it has a status there."""
        instance = self.ec2.rent(self.name)
        if status is not None:
            self.sky.knows(self.name, status)
        self.ask()
        return instance

    def flow_beats(self, owner: str = ELSEWHERE) -> None:
        said = FlowHeartbeat(owner=owner, at=LONG_AGO, epoch=1)
        self.store.put(f"{self.placements.root}/flow.json", said.model_dump_json().encode())

    def silence(self, word: str, seconds: float = 600) -> None:
        """Set the store's clock forward for one object."""
        then = time.time() - seconds
        for path in Path(self.store.uri(self.placements.root)).rglob(word):
            os.utime(path, (then, then))

    def reap(self, *, dry_run: bool = False) -> ReapReport:
        def until_the_second_look(seconds: float) -> None:
            self.paused_s.append(seconds)
            self.meanwhile()

        accounts, now_s = self.accounts, time.time()
        return reap_store(self.store, self.sky, accounts, now_s, dry_run=dry_run, pause=until_the_second_look)

    def reaped(self, name: str = "") -> Reaped:
        """What became of the one cluster of a name, the cell's unless another is said."""
        return the_one(self.reap(), name or self.name)

    def is_closed(self) -> bool:
        return self.run.story().end is not None


@pytest.fixture(scope="module")
def cloud(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ec2]:
    server = make_server("moto", tmp_path_factory.mktemp("moto"))
    server.start()
    yield Ec2(server)
    server.kill()


@pytest.fixture
def scene(tmp_path: Path, cloud: Ec2, monkeypatch: pytest.MonkeyPatch) -> Iterator[Scene]:
    for name, value in {**KEYS, "AWS_ENDPOINT_URL": cloud.url}.items():
        monkeypatch.setenv(name, value)
    made = Scene(tmp_path, cloud)
    yield made
    for region in ("us-east-1", "us-west-2"):
        made.ec2.terminate("*", region)


class Told(AwsAccount):
    """An account that says what it is told."""

    def __init__(self, answer: Sighting | Exception, cloud: str = "aws") -> None:
        super().__init__()
        self.answer, self.cloud, self.looks = answer, cloud, 0

    def look(self) -> Sighting:
        self.looks += 1
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


def the_one(report: ReapReport, name: str, status: str | None = None) -> Reaped:
    (found,) = [each for each in report.reaped if each.found.cluster == name and status in (None, each.found.status)]
    return found


@pytest.mark.slow(19)
def test_a_forgotten_instance_goes_down_and_its_records_are_closed(scene: Scene) -> None:
    instance = scene.ec2.rent(scene.name, "us-west-2")
    scene.ask()
    lease = scene.run.leases.acquire(ELSEWHERE)
    scene.run.leases.beat(Heartbeat(attempt=1, phase="step", measure_s=50.0, at_risk_s=8.0, at=LONG_AGO))
    scene.silence("*.json")
    report = scene.reap()
    assert scene.ec2.state(instance, "us-west-2") in ("shutting-down", "terminated")
    reaped = the_one(report, scene.name)
    said = (reaped.done, reaped.found.status, reaped.fate.owner, reaped.usd_h)
    assert said == ("down", "not in SkyPilot", "nobody", 2.5)
    assert reaped.found.where.startswith("aws/us-west-2") and reaped.found.where.endswith("spot")
    assert report.ok and report.saved_usd_h == 2.5
    assert "1 of 1 went down, which saves 2.50 USD an hour" in report.summary()
    end = scene.run.story().end
    assert end is not None and (end.outcome, end.detail, end.attempt) == ("stopped", "reaped", 1)
    closed = scene.run.leases.closed(lease.epoch)
    assert closed is not None and (closed.outcome, closed.reason) == ("lost", "reaped: nobody owned its cluster")
    assert (closed.measure_s, closed.lost_s, closed.owner) == (42.0, 8.0, ELSEWHERE)
    assert "nothing of ours is rented" in scene.reap().summary()


@pytest.mark.slow(4)
@pytest.mark.parametrize("status", ["INIT", "AUTOSTOPPING", "UP", "STOPPED"])
def test_a_cluster_that_nobody_owns_goes_down_through_skypilot(scene: Scene, status: str) -> None:
    instance = scene.rented(status)
    reaped = scene.reaped()
    assert (reaped.done, reaped.found.status, reaped.usd_h) == ("down", status, 2.25)
    assert scene.sky.asked == [(scene.name, False)] and not scene.sky.clusters
    assert scene.ec2.state(instance) in ("shutting-down", "terminated")
    # no runner ever took a number: the try gets one, so that the attempts tell of it
    end = scene.run.story().end
    assert end is not None and end.attempt == 1
    (attempt,) = scene.run.attempts()
    assert (attempt.outcome, attempt.reason) == ("lost", "reaped: nobody owned its cluster")


def test_what_a_live_runner_or_a_live_flow_owns_is_left(scene: Scene) -> None:
    instance = scene.rented("UP")
    scene.flow_beats()
    by_flow = scene.reaped()
    assert (by_flow.done, by_flow.fate.owner) == ("left", ELSEWHERE)
    assert "a flow of run r1 manages it" in by_flow.fate.why
    scene.silence("flow.json")
    scene.run.leases.acquire(owner_name())
    by_runner = scene.reaped()
    assert (by_runner.done, by_runner.fate.owner) == ("left", owner_name())
    assert scene.sky.asked == [] and scene.ec2.state(instance) == "running" and not scene.is_closed()


@pytest.mark.parametrize("who", ["flow", "runner"])
def test_what_was_silent_with_the_store_and_beats_again_is_left(scene: Scene, who: str) -> None:
    instance = scene.rented("UP")
    if who == "runner":
        scene.run.leases.acquire(ELSEWHERE)
        beat = Heartbeat(attempt=1, phase="step", measure_s=50.0, at_risk_s=8.0, at=LONG_AGO)
        scene.run.leases.beat(beat)
        scene.meanwhile = lambda: scene.run.leases.beat(beat)
    else:
        scene.flow_beats()
        scene.meanwhile = scene.flow_beats
    scene.silence("*.json")  # the clock jumps: an outage, of which a fresh process knows nothing
    reaped = scene.reaped()
    assert (reaped.done, reaped.fate.owner, scene.paused_s) == ("left", ELSEWHERE, [SECOND_LOOK_S])
    assert scene.sky.asked == [] and scene.ec2.state(instance) == "running" and not scene.is_closed()
    scene.silence("*.json")
    scene.meanwhile = lambda: None
    assert scene.reaped().done == "down", "silent both times"


def test_a_flow_that_is_known_dead_owns_nothing(scene: Scene) -> None:
    scene.rented()
    where, tick = owner_name().rsplit("/", 1)
    scene.flow_beats(f"{where}/{int(tick) + 1}")  # another process had this id
    assert scene.reaped().done == "down"


def test_a_dry_run_does_nothing_and_says_so(scene: Scene) -> None:
    instance = scene.rented()
    report = scene.reap(dry_run=True)
    assert scene.paused_s == [], "it only looks once"
    assert the_one(report, scene.name).done == "would go down"
    assert "dry run, nothing was done: 1 of 1 would go down and save 2.50 USD an hour" in report.summary()
    shown = io.StringIO()
    Console(width=200, file=shown).print(report.table())
    words = ("not in SkyPilot", "aws/us-east-1", "spot", "nobody", "2.50", "would go down", "nobody works on its cell")
    assert all(word in shown.getvalue() for word in words)
    assert scene.ec2.state(instance) == "running" and not scene.is_closed() and scene.run.attempts() == []


def test_clusters_of_other_stores_are_left_until_they_expire(scene: Scene) -> None:
    names = [cluster_name(f"of-{word}", "r1", scene.run.key) for word in ("live", "dead", "mute")]
    now_s = int(time.time())
    labels: list[dict[str, str]] = [
        {EXPIRY_LABEL: str(now_s + 3 * 3600 + 60)},
        {EXPIRY_LABEL: str(now_s - 60), OWNER_LABEL: "ann-laptop", LABEL: "abcd"},
        {},
    ]
    ids = [scene.ec2.rent(name, **each) for name, each in zip(names, labels, strict=True)]
    report = scene.reap()
    live, dead, mute = (the_one(report, name) for name in names)
    assert live.done == "left" and "of another store, expires in 3h" in live.fate.why
    assert (dead.done, dead.fate.owner) == ("down", "ann-laptop") and "of another store, expired 1m" in dead.fate.why
    assert mute.done == "left" and "does not say when it expires" in mute.fate.why
    assert "and 1 of unknown price" in report.summary()
    assert [scene.ec2.state(each) == "running" for each in ids] == [True, False, True]


def test_a_cluster_of_this_store_that_no_run_has_goes_down(scene: Scene) -> None:
    orphan = f"{names_of_store(store_id(scene.store))}22222222"
    instance = scene.ec2.rent(orphan)
    reaped = scene.reaped(orphan)
    assert scene.paused_s == [], "no silence is behind that"
    assert (reaped.done, reaped.fate.why) == ("down", "no run of this store has its cell")
    assert scene.ec2.state(instance) != "running"


def test_two_stores_of_one_bucket_name_never_touch_each_others_machines(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same sweep, so the same run and cell, in both; in neither does anybody own its machine."""
    in_an_hour = {EXPIRY_LABEL: str(int(time.time()) + 3600)}
    with twin_stores(monkeypatch) as stores:
        machines = []
        for store in stores:
            ledger = Ledger(store, "r1")
            ledger.write_plan(scene.run.ledger.plan())
            name = cluster_name(store_id(store), "r1", scene.run.key)
            Placements(ledger, scene.run.key).ask(name, OFFER, ELSEWHERE, LONG_AGO)
            machines.append(scene.ec2.rent(name, **in_an_hour))
        for store, still_there in zip(stores, ([False, True], [False, False]), strict=True):
            reap_store(store, scene.sky, scene.accounts, time.time(), dry_run=False, pause=lambda _: None)
            assert [scene.ec2.state(each) == "running" for each in machines] == still_there


@pytest.mark.parametrize("where", ["folder", "server"])
def test_a_copy_of_a_store_neither_ends_its_machines_nor_says_that_they_are_gone(
    scene: Scene, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    with twin_stores(monkeypatch) as twins:
        store, copy = twins if where == "server" else (scene.store, open_store(str(tmp_path / "copy")))
        ledger = Ledger(store, "r1")
        ledger.write_plan(scene.run.ledger.plan())
        name = cluster_name(store_id(store), "r1", scene.run.key)
        Placements(ledger, scene.run.key).ask(name, OFFER, ELSEWHERE, LONG_AGO)
        machine = scene.ec2.rent(name, **{EXPIRY_LABEL: str(int(time.time()) + 3600)})
        copy_all(store, copy)
        for each in (copy, store):
            assert scene.ec2.state(machine) == "running"
            reap_store(each, scene.sky, scene.accounts, time.time(), dry_run=False, pause=lambda _: None)
            story = Placements(Ledger(each, "r1"), scene.run.key).stories()[-1]
            assert (story.end is None) == (each is copy)
        assert scene.ec2.state(machine) != "running"


def test_other_peoples_machines_are_never_touched(scene: Scene) -> None:
    instance = scene.ec2.rent("training-run")
    assert scene.reap().reaped == () and scene.ec2.state(instance) == "running"


def test_what_skypilot_cannot_take_down_goes_down_by_id_and_is_forgotten(scene: Scene) -> None:
    instance = scene.ec2.rent(scene.name)
    scene.sky.knows(scene.name, "INIT")
    scene.sky.broken = "StopFailoverError: can cause resource leakage"
    reaped = scene.reaped()
    assert reaped.done == "down" and "StopFailoverError" in reaped.remark
    assert scene.sky.asked == [(scene.name, False), (scene.name, True)] and not scene.sky.clusters
    assert scene.ec2.state(instance) != "running"


class Hangs(FakeSky):
    """It never answers whoever wants one cluster down; the others go."""

    def __init__(self, ec2: Ec2, name: str) -> None:
        super().__init__(ec2)
        self.name = name

    def take_down(self, name: str, **how: bool) -> bool:
        return sky_api.take_down(name, **how) if name == self.name else super().take_down(name, **how)


@pytest.mark.slow(2)
@pytest.mark.parametrize("by_id", [True, False], ids=["its cloud can be asked", "only SkyPilot can"])
def test_a_cluster_whose_down_hangs_keeps_no_other_up(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, by_id: bool
) -> None:
    names = [f"{names_of_store(store_id(scene.store))}2222222{number}" for number in range(3)]
    ids = [scene.ec2.rent(name) for name in names]
    scene.sky = sky = Hangs(scene.ec2, names[0])
    for name in names:
        sky.knows(name, "UP")
    scene.accounts = scene.accounts if by_id else []
    with hanging_sky(monkeypatch) as sdk:
        report = scene.reap()
        assert not sdk.woke and sdk.cancelled == (["down-1"] if by_id else [])
    assert [the_one(report, name).done for name in names] == ["down" if by_id else "not down", "down", "down"]
    assert "no answer" in the_one(report, names[0]).remark and report.ok == by_id
    assert by_id or scene.ec2.state(ids[0]) == "running"
    assert all(scene.ec2.state(each) != "running" for each in ids[0 if by_id else 1 :])


def test_a_down_that_may_yet_come_leaves_the_records_open(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    instance = scene.rented()
    scene.sky.knows(scene.name, "UP")
    may_yet_come = Mock(side_effect=MayYetCome("no answer; its `down` may yet come"))
    monkeypatch.setattr(scene.sky, "take_down", may_yet_come)
    report = scene.reap()
    assert the_one(report, scene.name).done == "not down" and "may yet come" in the_one(report, scene.name).remark
    assert scene.ec2.state(instance) != "running" and not scene.is_closed()


def test_what_could_not_be_taken_down_is_named_and_its_records_stay_open(scene: Scene) -> None:
    instance = scene.rented()
    scene.ec2.protect(instance, on=True)
    report = scene.reap()
    assert the_one(report, scene.name).done == "not down" and not report.ok
    assert any(scene.name in line and instance in line for line in report.lines())
    assert not scene.is_closed() and scene.run.attempts() == []
    scene.ec2.protect(instance, on=False)
    assert scene.reaped().done == "down"


class Dumb(Told):
    """An account that never answers."""

    def __init__(self) -> None:
        super().__init__(Sighting("dumb"), "dumb")
        self.wakes, self.woke = threading.Event(), False

    def look(self) -> Sighting:
        self.wakes.wait(60)
        self.woke = True
        return super().look()


@pytest.mark.slow(16)
def test_a_cloud_that_hangs_keeps_nothing_up_on_another(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    instance, dumb = scene.ec2.rent(scene.name), Dumb()
    scene.accounts = [dumb, *scene.accounts]
    monkeypatch.setattr("flows.reaper.reap.LOOK_S", 15.0)
    report = scene.reap()
    assert scene.ec2.state(instance) != "running" and not dumb.woke
    assert not report.ok and any(line.startswith("dumb: no answer") for line in report.problems)
    dumb.wakes.set()


def test_an_account_whose_library_fails_stops_no_other(scene: Scene) -> None:
    instance = scene.ec2.rent(scene.name)
    scene.accounts = [Told(ValueError("a library's own words"), "odd"), *scene.accounts]
    report = scene.reap()
    assert scene.ec2.state(instance) != "running"
    assert not report.ok and "odd: a library's own words" in report.problems


def test_without_skypilot_the_cloud_is_reaped_all_the_same(scene: Scene) -> None:
    instance = scene.ec2.rent(scene.name)
    scene.sky.broken = "gone"
    report = scene.reap()
    assert scene.ec2.state(instance) != "running"
    assert not report.ok and any("SkyPilot could not be asked" in line for line in report.lines())


def test_a_cloud_that_does_not_answer_is_a_problem_not_an_empty_cloud(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene.ask()
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    report = scene.reap()
    assert not report.ok and any("ec2:DescribeRegions" in line for line in report.lines())
    assert not scene.is_closed(), "a cluster that may be up keeps its record"


def test_a_cloud_without_credentials_is_said_not_to_be_asked(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in KEYS:
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(scene.run.folder / "none"))
    report = scene.reap()
    assert report.ok and any(line.startswith("not asked: aws: no credentials") for line in report.lines())


@pytest.mark.slow(4)
def test_a_machine_that_an_earlier_launch_left_elsewhere_goes_down_and_the_new_one_stays(scene: Scene) -> None:
    old = scene.ec2.rent(scene.name, "us-west-2")
    new = scene.ec2.rent(scene.name)
    scene.ask()
    scene.sky.knows(scene.name, "UP", launched_at_s=time.time() + 5)
    scene.flow_beats()
    report = scene.reap()
    assert the_one(report, scene.name, "stray").done == "down"
    assert the_one(report, scene.name, "UP").done == "left"
    assert scene.ec2.state(old, "us-west-2") != "running" and scene.ec2.state(new) == "running"
    assert not scene.is_closed()


def test_a_record_whose_cluster_is_gone_is_closed_unless_somebody_manages_it(scene: Scene) -> None:
    scene.ask()
    scene.flow_beats()
    assert scene.reap().closed == () and not scene.is_closed()
    scene.silence("flow.json")
    scene.meanwhile = scene.flow_beats
    assert scene.reap().closed == () and not scene.is_closed(), "it was the store that was away"
    scene.silence("flow.json")
    scene.meanwhile = lambda: None
    report = scene.reap()
    assert report.closed == (scene.name,)
    end = scene.run.story().end
    assert end is not None and end.outcome == "autodowned" and "gone when the reaper looked" in end.detail
    assert scene.reap().closed == ()


def test_names_on_every_cloud_still_tell_whose_a_cluster_is(monkeypatch: pytest.MonkeyPatch) -> None:
    from sky.clouds import AWS, GCP
    from sky.utils import common_utils

    name = cluster_name("ab2" * 8, "nightly-2026-11-20", "0123456789abcdef")
    shortened: Callable[..., str] = common_utils.make_cluster_name_on_cloud
    monkeypatch.setattr(common_utils, "get_user_hash", lambda: "12ab34cd")
    for cloud in (AWS, GCP):
        assert shortened(name, cloud.max_cluster_name_length()) == f"{name}-12ab34cd", cloud


@pytest.mark.slow(14)
def test_the_scheduled_flow_leaves_skypilot_alone_for_a_store_that_never_rented(tmp_path: Path) -> None:
    run = FakeRun(tmp_path)
    home = tmp_path / "sky-home"
    home.mkdir()
    env = our_environment(tmp_path / "prefect", None) | {"SPECSWEEP_SKY_HOME": str(home)}
    code = f"from flows.reap import reap; print(reap({run.store_url!r}))"
    done = run_python("-c", code, env=env)
    assert done.returncode == 0, done.stderr
    assert "'clusters': []" in done.stdout and "nothing was ever rented" in done.stderr + done.stdout
    assert list(home.iterdir()) == []


def test_a_living_flow_keeps_its_clusters_from_the_reapers_of_other_stores_however_old_they_are(scene: Scene) -> None:
    """Launched long ago, label run out: the flow of the other store has just found it again."""
    other = FakeRun(scene.run.folder / "other")
    theirs = store_id(other.ledger.store)
    name = cluster_name(theirs, other.ledger.run_id, other.key)
    expired = {EXPIRY_LABEL: str(int(time.time()) - 60), LABEL: theirs}
    alive, lookalike = scene.ec2.rent(name, "us-west-2", **expired), scene.ec2.rent(f"{name}0", **expired)
    said: list[str] = []
    ExpiryRenewer(
        [name], [scene.ec2.account, GcpProject(log_in=Mock(side_effect=NotAsked("no credentials")))], said.append
    ).renew()
    why = scene.reaped(name).fate.why
    assert why.startswith(("of another store, expires in 23h", "of another store, expires in 24h00m")) and not said
    assert scene.ec2.state(alive, "us-west-2") == "running" and scene.ec2.state(lookalike) != "running"


def test_a_laptop_that_wakes_between_the_two_looks_keeps_its_clusters(scene: Scene) -> None:
    other = cluster_name("another", "r1", scene.run.key)
    instance = scene.ec2.rent(other, **{EXPIRY_LABEL: str(int(time.time()) - 60)})
    scene.meanwhile = ExpiryRenewer([other], [scene.ec2.account], print).renew
    assert scene.reaped(other).done == "left" and scene.paused_s == [SECOND_LOOK_S]
    assert scene.ec2.state(instance) == "running"


@pytest.mark.parametrize("kind", [CloudError, RuntimeError])
def test_a_label_that_can_not_be_renewed_is_told_once(kind: type[Exception]) -> None:
    said: list[str] = []
    renewer = ExpiryRenewer(["specsweep-1d70d-fd7c376ff3"], [Told(kind("aws: allow ec2:CreateTags"))], said.append)
    renewer.renew()
    renewer.renew()
    assert len(said) == 1 and "any store's reaper may take" in said[0] and "allow ec2:CreateTags" in said[0]


class Labels(Told):
    """An account that notes what is labelled."""

    def __init__(self, names: list[str]) -> None:
        machines = [
            Instance("aws", "us-east-1", None, name, f"{name}-12ab34cd", "running", True, None, {}) for name in names
        ]
        super().__init__(Sighting("aws", tuple(machines)))
        self.labelled: list[str] = []

    def label(self, instances: Sequence[Instance], labels: Mapping[str, str]) -> None:
        self.labelled = [each.instance_id for each in instances]


def test_a_cell_whose_flow_hangs_over_it_is_soon_kept_from_nobody(run: FakeRun) -> None:
    followed, hung = run.key, "f" * 16
    account = Labels([followed, hung])
    renewer = ExpiryRenewer([followed, hung], [account], print)
    with HeldCells(run.ledger, print, renewer.attend) as held, held.managing(followed), held.managing(hung):
        held.require(hung)
        for _ in range(3):
            held.require(followed)
            renewer.renew()
        assert account.labelled == [followed]
        held.require(hung)
        renewer.renew()
        assert account.labelled == [followed, hung], "it goes on"


@pytest.mark.slow(12)
def test_labels_are_renewed_by_the_clock_that_goes_on_while_a_laptop_sleeps() -> None:
    unseen = Told(NotAsked("no credentials"))
    moments = iter([0.0, 0.0, 0.0, 100.0, RENEW_EVERY_S, RENEW_EVERY_S, RENEW_EVERY_S])

    class Skipping(threading.Event):
        """Time goes by in leaps; the third look is the last."""

        def wait(self, timeout: float | None = None) -> bool:
            return unseen.looks == 2

    ExpiryRenewer([], [unseen], lambda _: None, lambda: next(moments)).run(Skipping())
    assert unseen.looks == 2


@pytest.mark.parametrize("name", ["a-copy", "r1 (copy)"])
def test_a_copy_of_a_run_stands_in_nobodys_way(scene: Scene, name: str, capsys: pytest.CaptureFixture[str]) -> None:
    scene.rented("UP")
    runs = Path(scene.store.uri("runs"))
    shutil.copytree(runs / "r1", runs / name)
    copied = {path: path.read_bytes() for path in (runs / name).rglob("*.json")}
    assert scene.reaped().done == "down" and scene.is_closed()
    assert {path: path.read_bytes() for path in (runs / name).rglob("*.json")} == copied, "nothing is written there"
    assert capsys.readouterr().err.count(repr(name)) == ("(" in name), "only what can't be read is skipped"


def test_what_a_newer_version_works_on_is_left_and_the_rest_goes_down(
    scene: Scene, capsys: pytest.CaptureFixture[str]
) -> None:
    mine = scene.rented("UP")
    orphan = f"{names_of_store(store_id(scene.store))}22222222"
    scene.ec2.rent(orphan)
    key = f"{scene.placements.root}/leases/000001.json"
    scene.store.put(key, b'{"cell_key": "x", "epoch": 1, "owner": "a/b/1/2", "granted_at": "2026", "of_tomorrow": 1}')
    report = scene.reap()
    left = the_one(report, scene.name)
    assert (left.done, left.fate.owner, scene.ec2.state(mine)) == ("left", "?", "running")
    assert the_one(report, orphan).done == "down"
    [line] = capsys.readouterr().err.splitlines()
    assert "'r1' was written by another version" in line
