"""A launch that hangs is cut short: a real EC2 control plane on loopback (moto), SkyPilot's server is a fake.

The real SkyPilot's turn is in tests/cloud.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from flows.clock import FlowStopped
from flows.clusters.protocol import CellJob, LaunchFailed
from flows.clusters.skypilot.cluster import SkyCluster
from flows.clusters.skypilot.launch_watch import LaunchBounds
from tests.fake_cloud import OFFER
from tests.flows.reaper.test_reap import Ec2, cloud
from tests.warehouse.ledger.store.conftest import KEYS
from warehouse.ledger.outcomes import Ended
from warehouse.ledger.store import StoreAway, StoreError

__all__ = ["cloud"]

NAME, JOB = "specsweep-ab12c-night-0123456789abcdef", CellJob("s3://b/p", "night", "0123456789abcdef")
SPENT = "run night spent 3.61 of 3.60 USD: stopped"
PATIENCE_S = 60.0


class HangingSky:
    """SkyPilot's server: it rents, and waits for a machine that never answers until the request is cancelled."""

    def __init__(self, ec2: Ec2) -> None:
        self.ec2, self.cancelled, self.machine = ec2, threading.Event(), ""
        self.market, self.deaf = "spot", 0  # `deaf`: how often it does not hear that it shall cancel

    def call(self, request: object, log: Path, started: Callable[[str], None]) -> Any:
        self.machine = self.ec2.rent(NAME, market=self.market)
        started("request-1")
        assert self.cancelled.wait(PATIENCE_S), "nobody cuts the launch short"
        raise RuntimeError("the request was cancelled")

    def cancel(self, request_id: str) -> None:
        if self.deaf:
            self.deaf -= 1
            raise ConnectionError("the API server does not answer")
        self.cancelled.set()

    @property
    def state(self) -> str:
        return self.ec2.state(self.machine)


@pytest.fixture
def sky(cloud: Ec2, monkeypatch: pytest.MonkeyPatch) -> HangingSky:
    for name, value in {**KEYS, "AWS_ENDPOINT_URL": cloud.url}.items():
        monkeypatch.setenv(name, value)
    fake, server = HangingSky(cloud), "flows.clusters.skypilot.server"
    monkeypatch.setattr(f"{server}.call", fake.call)
    monkeypatch.setattr(f"{server}.cancel_request", fake.cancel)
    monkeypatch.setattr("flows.clusters.skypilot.launch_watch.LOOK_EVERY_S", 0.05)
    return fake


def cluster_of(folder: Path, bounds: LaunchBounds, name: str = NAME, *, stopped: bool = False) -> SkyCluster:
    return SkyCluster(name, lambda job: nullcontext(), OFFER, folder / "launch.log", lambda: stopped, bounds)


def launch(folder: Path, bounds: LaunchBounds, *, stopped: bool = False) -> LaunchFailed | FlowStopped:
    cluster = cluster_of(folder, bounds, stopped=stopped)
    with pytest.raises((LaunchFailed, FlowStopped)) as raised:
        cluster.launch(JOB)
    return raised.value


NO_TIME, NO_MONEY = LaunchBounds(0.0, lambda: None, lambda: True), LaunchBounds(1.0, lambda: SPENT, lambda: True)


@pytest.mark.slow(2)
@pytest.mark.parametrize(
    ("bounds", "how", "said"),
    [
        (NO_TIME, Ended.LAUNCH_FAILED, "aws/us-east-1a spot: not launched within 0 h (cloud.launch_h): cut short"),
        (NO_MONEY, Ended.STOPPED, SPENT),
    ],
    ids=["deadline", "purse"],
)
def test_a_launch_that_takes_too_much_is_cut_short_and_its_machine_ended(
    sky: HangingSky, tmp_path: Path, bounds: LaunchBounds, how: Ended, said: str
) -> None:
    cut = launch(tmp_path, bounds)
    assert isinstance(cut, LaunchFailed) and (cut.how, str(cut)) == (how, said)
    assert sky.state == "terminated"


def test_a_flow_that_ends_ends_the_machine_that_it_is_launching(sky: HangingSky, tmp_path: Path) -> None:
    bounds = LaunchBounds(1.0, lambda: None, lambda: True)
    assert isinstance(launch(tmp_path, bounds, stopped=True), FlowStopped)
    assert sky.state == "terminated"


def test_a_server_that_does_not_hear_is_told_again(sky: HangingSky, tmp_path: Path) -> None:
    sky.deaf = 2
    launch(tmp_path, NO_TIME)
    assert sky.deaf == 0 and sky.state == "terminated"


def test_the_machine_of_a_cell_that_another_flow_has_taken_over_is_left_to_it(sky: HangingSky, tmp_path: Path) -> None:
    launch(tmp_path, NO_TIME._replace(holds=lambda: False))
    assert sky.cancelled.is_set() and sky.state == "running"


def test_an_odd_error_does_not_end_the_watch(sky: HangingSky, tmp_path: Path) -> None:
    over = Mock(side_effect=[ValueError("odd"), StoreError("403 RequestTimeTooSkewed"), *[SPENT] * 99])
    assert str(launch(tmp_path, LaunchBounds(1.0, over, lambda: True))) == SPENT
    assert sky.state == "terminated"


def test_a_machine_on_demand_is_terminated_not_stopped_when_it_powers_itself_off(
    sky: HangingSky, tmp_path: Path
) -> None:
    sky.market = "on demand"
    looks: list[str] = []

    def over() -> str | None:
        looks.extend([sky.machine] if sky.machine else [])
        return SPENT if len(looks) > 1 else None  # the look before this one has seen it

    launch(tmp_path, LaunchBounds(1.0, over, lambda: False))
    with sky.ec2.client() as ec2:
        name = "instanceInitiatedShutdownBehavior"
        said = ec2.describe_instance_attribute(InstanceId=sky.machine, Attribute=name)
        ec2.terminate_instances(InstanceIds=[sky.machine])
    assert said["InstanceInitiatedShutdownBehavior"] == {"Value": "terminate"}


def test_a_store_that_is_away_ends_nothing_and_the_deadline_holds_all_the_same(sky: HangingSky, tmp_path: Path) -> None:
    away = StoreAway("s3://b/p does not answer")
    asked = Mock(side_effect=[away, away, SPENT])
    cut = launch(tmp_path, LaunchBounds(1.0, asked, lambda: True))
    assert str(cut) == SPENT and asked.call_count == 3, "it is asked until it answers"

    sky.cancelled.clear()
    assert "cloud.launch_h" in str(launch(tmp_path, LaunchBounds(1e-4, Mock(side_effect=away), lambda: True)))
    assert sky.state == "terminated"


def test_the_machine_that_ended_seconds_before_is_not_the_one_that_was_never_launched(
    sky: HangingSky, tmp_path: Path
) -> None:
    # a replacement is asked for as soon as its predecessor, of the same name, is down
    name = f"{NAME}-3"
    cluster = cluster_of(tmp_path, NO_TIME, name)
    sky.machine, rented_s = sky.ec2.rent(name), time.time()
    while time.time() < rented_s + 2:  # EC2 tells whole seconds
        assert sky.state == "running"
    sky.ec2.terminate(name)
    end = cluster.machine_end(rented_s)
    assert end is not None and end.at_s is not None and end.at_s > rented_s
    never = cluster.machine_end(end.at_s + 4)
    assert never is not None and never.is_of_none


@pytest.mark.slow(4)
def test_what_ec2_never_launched_has_an_end_without_seconds(sky: HangingSky, tmp_path: Path) -> None:
    cluster = cluster_of(tmp_path, NO_TIME, f"{NAME}-2")
    asked_s = time.time()
    end = cluster.machine_end(asked_s)
    assert end is not None and end.is_of_none
    assert cluster.machine_end(asked_s - 7200) is None, "EC2 may have forgotten it"
    sky.ec2.rent(f"{NAME}-2")
    assert cluster.machine_end(asked_s) is None, "it is up"
