"""SkyPilot that hangs has an end, and what the cloud can end itself goes down all the same: moto's EC2, a fake SDK."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from configs.checkout import ROOT
from flows.clusters import clouds
from flows.clusters.answers import NoAnswer
from flows.clusters.clouds import aws
from flows.clusters.clouds.account import Instance, NotAsked, Sighting
from flows.clusters.protocol import LaunchFailed
from flows.clusters.skypilot import api as sky_api
from flows.clusters.skypilot import server as sky_server
from flows.clusters.skypilot.cluster import SkyCluster
from flows.clusters.skypilot.launch_watch import LaunchBounds
from tests.fake_cloud import OFFER, offer
from tests.flows.clusters.skypilot.test_launch_bounds import (
    NAME,
    NO_TIME,
    SPENT,
    HangingSky,
    cluster_of,
    launch,
    sky,
)
from tests.flows.clusters.skypilot.test_sdk import cluster
from tests.flows.reaper.test_reap import Ec2, cloud
from tests.hanging_sky import HANG_S, HangingSdk, hanging_sky
from tests.warehouse.ledger.store.conftest import KEYS

__all__ = ["cloud", "cluster", "sky"]


@pytest.fixture
def hanging(monkeypatch: pytest.MonkeyPatch) -> Iterator[HangingSdk]:
    with hanging_sky(monkeypatch) as sdk:
        yield sdk


@pytest.mark.parametrize(
    "ask",
    [
        lambda: sky_api.rented([NAME], refresh=True),
        lambda: sky_api.newest_job(NAME),
        lambda: sky_api.take_down(NAME),
        sky_api.enabled_clouds,
    ],
    ids=["status", "queue", "down", "clouds"],
)
def test_every_request_has_an_end(hanging: HangingSdk, monkeypatch: pytest.MonkeyPatch, ask: Callable[[], Any]) -> None:
    monkeypatch.setenv("SKYPILOT_API_SERVER_ENDPOINT", "http://127.0.0.1:1")
    with pytest.raises(NoAnswer, match="no answer within 0 s; see"):
        ask()
    assert not hanging.woke


@pytest.mark.parametrize("ask", [sky_api.enabled_clouds, lambda: sky_api.offers(Mock(resources=[]))])
def test_a_look_at_credentials_that_hangs_has_an_end(
    hanging: HangingSdk, monkeypatch: pytest.MonkeyPatch, ask: Callable[[], Any]
) -> None:
    monkeypatch.setattr("sky.check.get_cached_enabled_clouds_or_refresh", lambda capability: hanging.get("check"))
    with pytest.raises(NoAnswer, match=r"no answer within .*bin/sky check"):
        ask()
    assert not hanging.woke


def test_no_exit_waits_for_what_hangs() -> None:
    program = """
import threading
from flows.clusters.answers import NoAnswer, answered
try:
    answered(threading.Event().wait, 0.1)
except NoAnswer as error:
    print(error, flush=True)
"""
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, text=True, capture_output=True, timeout=HANG_S)
    assert (done.returncode, done.stderr) == (0, "") and "no answer within" in done.stdout


def test_a_machine_that_may_still_be_up_is_named_and_its_down_goes_on(hanging: HangingSdk, cluster: SkyCluster) -> None:
    with pytest.raises(NoAnswer, match=r"night may still be up .* `bin/sky down -y night`"):
        cluster.down()
    assert not hanging.woke and hanging.cancelled == []


@pytest.mark.slow(1)
@pytest.mark.parametrize("is_deaf", [False, True])
def test_what_its_cloud_has_ended_is_down_and_no_late_down_takes_the_next_of_its_name(
    cloud: Ec2, hanging: HangingSdk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_deaf: bool
) -> None:
    hanging.deaf = is_deaf
    for name, value in {**KEYS, "AWS_ENDPOINT_URL": cloud.url}.items():
        monkeypatch.setenv(name, value)
    machine = cloud.rent(f"{NAME}-9")
    cluster = cluster_of(tmp_path, NO_TIME, f"{NAME}-9")
    with pytest.raises(NoAnswer, match="may yet come") if is_deaf else nullcontext():
        cluster.down()  # a cell whose next machine it may take must not rent one
    assert cloud.state(machine) == "terminated" and hanging.cancelled == ["down-1"] and not hanging.woke


@pytest.mark.parametrize("ahead_s", [0.0, 3600.0], ids=["its own", "an earlier launch's"])
def test_only_a_machine_of_its_own_says_that_a_launch_has_ended(
    cloud: Ec2, monkeypatch: pytest.MonkeyPatch, ahead_s: float
) -> None:
    for key, value in {**KEYS, "AWS_ENDPOINT_URL": cloud.url}.items():
        monkeypatch.setenv(key, value)
    name, since_s = f"{NAME}-{ahead_s:.0f}", time.time() + ahead_s
    machines = aws.machines_of(name, OFFER)
    assert machines is not None and not machines.terminate(since_s), "none yet"
    cloud.rent(name)
    cloud.terminate(name)
    assert machines.terminate(since_s) == (ahead_s == 0.0)


class Account:
    """A cloud that ends by id what it lists, or isn't set up here."""

    cloud = "fake"

    def __init__(self, looks: Sighting | Exception) -> None:
        self.looks, self.ended = looks, list[str]()

    def look(self) -> Sighting:
        if isinstance(self.looks, Exception):
            raise self.looks
        return self.looks

    def terminate(self, instances: list[Instance]) -> None:
        self.ended += [each.instance_id for each in instances]


MINE, OTHER = (
    Instance("fake", "east-1", "east-1a", name, f"{name}-12ab34cd", "running", True, None, {})
    for name in ("night", "night2")
)


@pytest.mark.parametrize(
    ("looks", "is_ended"),
    [
        (Sighting("fake", (MINE, OTHER)), True),
        (Sighting("fake", (MINE, OTHER), problems=("fake/east-2: unreachable",)), False),
        (Sighting("fake", (OTHER,)), False),
        (NotAsked("no credentials"), False),
    ],
    ids=["all seen", "not all seen", "none seen, so one may still come", "not set up"],
)
def test_any_cloud_that_ends_by_id_is_told_before_skypilot(
    hanging: HangingSdk, cluster: SkyCluster, monkeypatch: pytest.MonkeyPatch, looks: Any, is_ended: bool
) -> None:
    account = Account(looks)
    monkeypatch.setattr(clouds, "accounts", lambda: [Mock(cloud="another"), account])
    monkeypatch.setattr(cluster, "_offer", offer())
    if is_ended:
        cluster.down()
    else:
        with pytest.raises(NoAnswer):
            cluster.down()
    assert account.ended == (["night"] if isinstance(looks, Sighting) and MINE in looks.instances else [])


class Deaf(HangingSky):
    """It goes on with its launch whatever it is told."""

    is_over = False

    def call(self, request: object, log: Path, started: Callable[[str], None]) -> Any:
        self.machine = self.ec2.rent(NAME)
        started("request-1")
        self.cancelled.wait(HANG_S)
        self.is_over = True
        raise RuntimeError("it woke")

    def cancel(self, request_id: str) -> None:
        self.cancelled.wait(HANG_S)


def test_nobody_waits_for_a_launch_that_skypilot_does_not_end(
    sky: HangingSky, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    deaf = Deaf(sky.ec2)
    monkeypatch.setattr(sky_server, "call", deaf.call)
    monkeypatch.setattr(sky_server, "cancel_request", deaf.cancel)
    monkeypatch.setattr("flows.clusters.skypilot.launch_watch.UNHEARD_S", 0.2)
    cut = launch(tmp_path, LaunchBounds(1.0, lambda: SPENT if deaf.machine else None, lambda: True))
    assert isinstance(cut, LaunchFailed) and str(cut) == SPENT
    assert not deaf.is_over and deaf.state == "terminated"
    deaf.cancelled.set()


@pytest.mark.slow(16)
def test_a_region_that_hangs_hides_no_other_and_keeps_no_exit(cloud: Ec2, monkeypatch: pytest.MonkeyPatch) -> None:
    wakes, woke, before = threading.Event(), list[str](), {*threading.enumerate()}
    look = aws._in_region

    def hangs_in_the_west(client: Any) -> Sighting:
        if client.meta.region_name == "us-west-2":
            wakes.wait(HANG_S)
            woke.append("west")
        return look(client)

    for name, value in {**KEYS, "AWS_ENDPOINT_URL": cloud.url}.items():
        monkeypatch.setenv(name, value)
    machine = cloud.rent(NAME)
    monkeypatch.setattr(aws, "_in_region", hangs_in_the_west)
    monkeypatch.setattr(aws, "REGION_S", 15.0, raising=False)
    sighting = cloud.account.look()
    assert [each.instance_id for each in sighting.instances] == [machine] and not woke
    assert any(said.startswith("aws/us-west-2: no answer") for said in sighting.problems)
    assert all(each.daemon for each in {*threading.enumerate()} - before)
    wakes.set()
