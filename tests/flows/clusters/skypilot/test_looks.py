"""A node that SkyPilot can't ask is left to its heartbeat, whatever stood in the way. SkyPilot's SDK is a fake."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
import requests

from flows.clusters.protocol import CellJob, LaunchFailed
from flows.clusters.skypilot import api as sky_api
from flows.clusters.skypilot import server as sky_server
from flows.clusters.skypilot.api import Job
from flows.clusters.skypilot.cluster import SkyCluster
from flows.clusters.skypilot.launch_watch import LaunchBounds
from flows.clusters.skypilot.server import SkyUnavailable
from sky import exceptions
from tests.fake_cloud import wait_for
from warehouse.outcomes import Ended

UNREACHABLE = exceptions.CommandError(255, "ssh", "Connection reset by peer", None)
ODD = [
    exceptions.CloudUserIdentityError("gcloud: database is locked"),
    exceptions.RequestCancelled("the request was cancelled"),
    exceptions.CloudError("invalid_grant", cloud_provider="gcp", error_type="RefreshError"),
    requests.exceptions.ConnectionError("the tunnel is gone"),
    RuntimeError("Failed to get request"),
    SkyUnavailable("SkyPilot's API server went away 6 times"),
]


def raises(error: Exception) -> Callable[..., Any]:
    def ask(*asked: object, **how: object) -> Any:
        raise error

    return ask


@pytest.fixture
def cluster(tmp_path: Path) -> SkyCluster:
    bounds = LaunchBounds(1.0, lambda: None, lambda: True)
    return SkyCluster("night", lambda job: nullcontext(), None, tmp_path / "launch.log", lambda: False, bounds)


@pytest.mark.parametrize("error", ODD, ids=lambda error: type(error).__name__)
@pytest.mark.parametrize("who", ["newest_job", "rented"])
def test_a_look_that_can_not_be_answered_says_so_once_and_ends_nothing(
    cluster: SkyCluster,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    error: Exception,
    who: str,
) -> None:
    monkeypatch.setattr(sky_api, "newest_job", raises(UNREACHABLE))
    monkeypatch.setattr(sky_api, who, raises(error))
    assert [cluster.look(None, insist=True) for _ in range(3)] == [None, None, None]
    assert len(caplog.messages) == 1 and str(error) in caplog.messages[0]


@pytest.mark.parametrize("error", ODD, ids=lambda error: type(error).__name__)
def test_a_log_that_can_not_be_had_hides_no_ending(
    cluster: SkyCluster, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    monkeypatch.setattr(sky_api, "newest_job", lambda name: Job(1, "FAILED_DRIVER"))
    monkeypatch.setattr(sky_api, "job_log", raises(error))
    ending = cluster.look(None)
    assert ending is not None and ending.how is Ended.JOB_FAILED
    assert "(the job's log can't be had: " in ending.detail and str(error) in ending.detail


@pytest.mark.parametrize(
    "error",
    [exceptions.ClusterDoesNotExist("no cluster night"), UNREACHABLE],
    ids=["forgotten", "unreachable"],
)
def test_a_node_that_is_gone_by_anybodys_word_is_lost(
    cluster: SkyCluster, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    monkeypatch.setattr(sky_api, "newest_job", raises(error))
    monkeypatch.setattr(sky_api, "rented", lambda names, refresh: [])
    ending = cluster.look(None)
    assert ending is not None and ending.how is Ended.PREEMPTED


@pytest.fixture
def dumb(monkeypatch: pytest.MonkeyPatch) -> Iterator[Dumb]:
    node = Dumb()
    for name in ("newest_job", "job_log"):
        monkeypatch.setattr(sky_api, name, node.ask)
    monkeypatch.setattr(sky_api, "rented", lambda names, refresh=False: node.ask() if refresh else names)
    monkeypatch.setattr("flows.clusters.skypilot.cluster.PATIENCE_S", 0.05, raising=False)
    yield node
    node.wakes.set()


class Dumb:
    """A node whose sshd lives and whose commands hang."""

    def __init__(self) -> None:
        self.wakes, self.asked = threading.Event(), 0

    def ask(self, *asked: object, **how: object) -> Job:
        self.asked += 1
        assert self.wakes.wait(60), "its questions are waited for"
        return Job(1, "FAILED_DRIVER")


@pytest.mark.parametrize("asked", ["look", "adopt", "is_there", "log_tail"])
def test_nobody_waits_for_a_node_that_hangs(cluster: SkyCluster, dumb: Dumb, asked: str) -> None:
    begun_s = time.monotonic()
    if asked == "look":
        assert cluster.look(None) is None
    elif asked == "adopt":
        assert not cluster.adopt()
    elif asked == "is_there":
        with pytest.raises(Exception, match="no answer within 0 s"):
            cluster.is_there()
    else:
        assert cluster.log_tail(3) == ["(the job's log can't be had: no answer within 0 s)"]
    assert time.monotonic() - begun_s < 30


def failed_launch(cluster: SkyCluster, monkeypatch: pytest.MonkeyPatch, error: Exception) -> LaunchFailed:
    """What a launch says that SkyPilot answered with an error."""
    monkeypatch.setattr(sky_server, "call", raises(error))
    with pytest.raises(LaunchFailed) as caught:
        cluster.launch(CellJob("s3://b/p", "night", "0123456789abcdef"))
    return caught.value


def test_a_failed_launch_does_not_wait_for_a_cloud_that_hangs(
    cluster: SkyCluster, dumb: Dumb, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun_s = time.monotonic()
    failed = failed_launch(cluster, monkeypatch, UNREACHABLE)
    assert time.monotonic() - begun_s < 30 and dumb.asked == 1
    assert failed.how is Ended.LAUNCH_FAILED
    assert "Connection reset by peer" in str(failed)
    assert str(failed).endswith("(what is left of it can't be asked: no answer within 0 s)")


@pytest.mark.parametrize("error", ODD, ids=lambda error: type(error).__name__)
def test_why_a_launch_failed_is_said_though_its_cloud_can_not_be_asked(
    cluster: SkyCluster, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    monkeypatch.setattr(sky_api, "rented", raises(error))
    failed = failed_launch(cluster, monkeypatch, UNREACHABLE)
    assert failed.how is Ended.LAUNCH_FAILED
    assert "Connection reset by peer" in str(failed) and str(error) in str(failed)


def test_a_node_that_hangs_is_asked_one_thing_at_a_time_and_heard_when_it_wakes(
    cluster: SkyCluster, dumb: Dumb, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert cluster.look(None) is cluster.look(None, insist=True) is None
    assert cluster.log_tail(3) == ["(the job's log can't be had: an earlier question has no answer yet)"]
    assert dumb.asked == 1
    dumb.wakes.set()
    monkeypatch.setattr("flows.clusters.skypilot.cluster.PATIENCE_S", 60.0)
    monkeypatch.setattr(sky_api, "job_log", lambda name, job_id, lines: ["its last line"])
    wait_for(lambda: cluster.look(None, insist=True) is not None, "its word")


def test_the_log_of_a_job_that_another_flow_launched_is_its_newest_jobs(
    cluster: SkyCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "launch.log").write_text("of a launch of last week\n")
    monkeypatch.setattr(sky_api, "job_log", lambda name, job_id, lines: [f"{name}, job {job_id}"])
    assert cluster.log_tail(3) == ["night, job None"]
