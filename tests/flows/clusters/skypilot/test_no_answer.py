"""SkyPilot that hangs has an end, and what the cloud can end itself goes down all the same: moto's EC2, a fake SDK."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest

from flows.clusters import clouds
from flows.clusters.answers import NoAnswer
from flows.clusters.clouds.account import Instance, NotAsked, Sighting
from flows.clusters.protocol import LaunchFailed
from flows.clusters.skypilot import api as sky_api
from flows.clusters.skypilot import server as sky_server
from flows.clusters.skypilot.cluster import SkyCluster
from flows.clusters.skypilot.launch_watch import LaunchBounds
from tests.fake_cloud import offer
from tests.flows.clusters.skypilot.test_launch_bounds import (
    NAME,
    NO_TIME,
    SPENT,
    HangingSky,
    cluster_of,
    launch,
    sky,
)
from tests.flows.clusters.skypilot.test_sdk import FakeSdk, cluster
from tests.flows.reaper.test_reap import Ec2, cloud
from tests.warehouse.ledger.store.conftest import KEYS

__all__ = ["cloud", "cluster", "sky"]

HANG_S = 60.0  # longest that a fake hangs: whoever waits for it has waited in vain


class Hanging(FakeSdk):
    """It takes every request, and answers none but that something be cancelled."""

    StatusRefreshMode = SimpleNamespace(FORCE="force", NONE="none")

    def __init__(self) -> None:
        super().__init__([])
        self.wakes, self.woke, self.cancelled = threading.Event(), False, list[str]()

    def down(self, cluster_name: str, purge: bool) -> str:
        return "down-1"

    def status(self, cluster_names: list[str], refresh: object) -> str:
        return "status-1"

    def queue(self, cluster_name: str, all_users: bool) -> str:
        return "queue-1"

    def api_cancel(self, request_ids: list[str]) -> str:
        self.cancelled += request_ids
        return "cancel-1"

    def get(self, request_id: str) -> str:
        if not request_id.startswith("cancel"):
            self.wakes.wait(HANG_S)
            self.woke = True
        return request_id


@pytest.fixture
def hanging(monkeypatch: pytest.MonkeyPatch) -> Iterator[Hanging]:
    sdk = Hanging()
    monkeypatch.setattr(sky_server, "ensure_server", lambda: None)
    monkeypatch.setattr(sky_server, "DOWN_S", 0.2)
    for module in (sky_server, sky_api):
        monkeypatch.setattr(module, "sdk", lambda: sdk)
    yield sdk
    sdk.wakes.set()


@pytest.mark.parametrize(
    "ask",
    [
        lambda: sky_api.rented([NAME], refresh=True),
        lambda: sky_api.newest_job(NAME),
        lambda: sky_api.take_down(NAME),
        lambda: sky_api.take_down(NAME, purge=True),
    ],
    ids=["status", "queue", "down", "purge"],
)
def test_every_request_has_an_end(hanging: Hanging, ask: Callable[[], Any]) -> None:
    with pytest.raises(NoAnswer):
        ask()
    assert not hanging.woke


def test_a_machine_that_may_still_be_up_is_named_and_its_down_goes_on(hanging: Hanging, cluster: SkyCluster) -> None:
    with pytest.raises(NoAnswer, match=r"night may still be up .* `bin/sky down -y night`"):
        cluster.down()
    assert not hanging.woke and hanging.cancelled == []


def test_what_its_cloud_has_ended_is_down_and_no_late_down_takes_the_next_of_its_name(
    cloud: Ec2, hanging: Hanging, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    for name, value in {**KEYS, "AWS_ENDPOINT_URL": cloud.url}.items():
        monkeypatch.setenv(name, value)
    machine = cloud.rent(f"{NAME}-9")
    with caplog.at_level(logging.WARNING):
        cluster_of(tmp_path, NO_TIME, f"{NAME}-9").down()
    assert cloud.state(machine) == "terminated" and hanging.cancelled == ["down-1"] and not hanging.woke
    assert any("was ended at its cloud" in line for line in caplog.messages)


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
        (NotAsked("no credentials"), False),
    ],
    ids=["all seen", "not all seen", "not set up"],
)
def test_any_cloud_that_ends_by_id_is_told_before_skypilot(
    hanging: Hanging, cluster: SkyCluster, monkeypatch: pytest.MonkeyPatch, looks: Any, is_ended: bool
) -> None:
    account = Account(looks)
    monkeypatch.setattr(clouds, "accounts", lambda: [Mock(cloud="another"), account])
    monkeypatch.setattr(cluster, "_offer", offer())
    if is_ended:
        cluster.down()
    else:
        with pytest.raises(NoAnswer):
            cluster.down()
    assert account.ended == ([] if isinstance(looks, Exception) else ["night"])


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
