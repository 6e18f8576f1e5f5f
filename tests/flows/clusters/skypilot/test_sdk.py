"""A node that SkyPilot can't ask is left to its heartbeat, whatever stood in the way. SkyPilot's SDK is a fake."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Literal, TextIO

import pytest
import requests
from sky.schemas.api.responses import ClusterJobRecord
from sky.server.constants import REQUEST_NAME_PREFIX
from sky.server.requests.serializers import decoders, encoders
from sky.skylet.job_lib import JobStatus

from flows.clusters.protocol import CellJob, LaunchFailed
from flows.clusters.skypilot import api as sky_api
from flows.clusters.skypilot import server as sky_server
from flows.clusters.skypilot.api import Job
from flows.clusters.skypilot.cluster import SkyCluster
from flows.clusters.skypilot.launch_watch import LaunchBounds
from flows.clusters.skypilot.server import SkyUnavailable
from sky import exceptions
from tests.busy_machine import PATIENCE_S
from tests.tasks.test_cell import wait_until
from warehouse.ledger.outcomes import Ended

JOB = CellJob("s3://b/p", "night", "0123456789abcdef")
UNREACHABLE = exceptions.CommandError(255, "ssh", "Connection reset by peer", None)
ODD = [
    exceptions.CloudUserIdentityError("gcloud: database is locked"),
    exceptions.RequestCancelled("the request was cancelled"),
    exceptions.CloudError("invalid_grant", cloud_provider="gcp", error_type="RefreshError"),
    requests.exceptions.ConnectionError("the tunnel is gone"),
    RuntimeError("Failed to get request"),
    SkyUnavailable("SkyPilot's API server went away 6 times"),
]
each_odd_error = pytest.mark.parametrize("error", ODD, ids=lambda error: type(error).__name__)


def raises(error: Exception) -> Callable[..., Any]:
    def ask(*asked: object, **how: object) -> Any:
        raise error

    return ask


@pytest.fixture
def cluster(tmp_path: Path) -> SkyCluster:
    bounds = LaunchBounds(1.0, lambda: None, lambda: True)
    return SkyCluster("night", lambda job: nullcontext(), None, tmp_path / "launch.log", lambda: False, bounds)


@each_odd_error
@pytest.mark.parametrize("who", ["newest_job", "rented"])
def test_a_look_that_can_not_be_answered_says_so_once_and_ends_nothing(
    cluster: SkyCluster, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, error: Exception, who: str
) -> None:
    monkeypatch.setattr(sky_api, "newest_job", raises(UNREACHABLE))
    monkeypatch.setattr(sky_api, who, raises(error))
    assert [cluster.look(None, insist=True) for _ in range(3)] == [None, None, None]
    assert len(caplog.messages) == 1 and str(error) in caplog.messages[0]


@each_odd_error
def test_a_log_that_can_not_be_had_hides_no_ending(
    cluster: SkyCluster, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    monkeypatch.setattr(sky_api, "newest_job", lambda name: Job(1, "FAILED_DRIVER"))
    monkeypatch.setattr(sky_api, "job_log", raises(error))
    ending = cluster.look(None)
    assert ending is not None and ending.how is Ended.JOB_FAILED
    assert "(the job's log can't be had: " in ending.detail and str(error) in ending.detail


@pytest.mark.parametrize(
    "error", [exceptions.ClusterDoesNotExist("no cluster night"), UNREACHABLE], ids=["forgotten", "unreachable"]
)
def test_a_node_that_is_gone_by_anybodys_word_is_lost(
    cluster: SkyCluster, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    monkeypatch.setattr(sky_api, "newest_job", raises(error))
    monkeypatch.setattr(sky_api, "rented", lambda names, refresh: [])
    ending = cluster.look(None)
    assert ending is not None and ending.how is Ended.PREEMPTED


class Dumb:
    def __init__(self) -> None:
        self.wakes, self.asked = threading.Event(), 0

    def ask(self, *asked: object, **how: object) -> Job:
        self.asked += 1
        assert self.wakes.wait(PATIENCE_S), "its questions are waited for"
        return Job(1, "FAILED_DRIVER")


@pytest.fixture
def dumb(monkeypatch: pytest.MonkeyPatch) -> Iterator[Dumb]:
    node = Dumb()
    for name in ("newest_job", "job_log"):
        monkeypatch.setattr(sky_api, name, node.ask)
    monkeypatch.setattr(sky_api, "rented", lambda names, refresh=False: node.ask() if refresh else names)
    monkeypatch.setattr("flows.clusters.skypilot.cluster.PATIENCE_S", 0.05)
    yield node
    node.wakes.set()


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


def failed_launch(cluster: SkyCluster, monkeypatch: pytest.MonkeyPatch) -> LaunchFailed:
    monkeypatch.setattr(sky_server, "call", raises(UNREACHABLE))
    with pytest.raises(LaunchFailed, match="Connection reset by peer") as caught:
        cluster.launch(JOB)
    assert caught.value.how is Ended.LAUNCH_FAILED
    return caught.value


def test_a_failed_launch_does_not_wait_for_a_cloud_that_hangs(
    cluster: SkyCluster, dumb: Dumb, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun_s = time.monotonic()
    failed = failed_launch(cluster, monkeypatch)
    assert time.monotonic() - begun_s < 30 and dumb.asked == 1
    assert str(failed).endswith("(what is left of it can't be asked: no answer within 0 s)")


@each_odd_error
def test_why_a_launch_failed_is_said_though_its_cloud_can_not_be_asked(
    cluster: SkyCluster, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    monkeypatch.setattr(sky_api, "rented", raises(error))
    assert str(error) in str(failed_launch(cluster, monkeypatch))


def test_a_node_that_hangs_is_asked_one_thing_at_a_time_and_heard_when_it_wakes(
    cluster: SkyCluster, dumb: Dumb, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert cluster.look(None) is cluster.look(None, insist=True) is None
    assert cluster.log_tail(3) == ["(the job's log can't be had: an earlier question has no answer yet)"]
    assert dumb.asked == 1
    dumb.wakes.set()
    monkeypatch.setattr("flows.clusters.skypilot.cluster.PATIENCE_S", 60.0)
    monkeypatch.setattr(sky_api, "job_log", lambda name, job_id, lines: ["its last line"])
    wait_until(lambda: cluster.look(None, insist=True) is not None, "its word")


def test_the_log_of_a_job_that_another_flow_launched_is_its_newest_jobs(
    cluster: SkyCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "launch.log").write_text("of a launch of last week\n")
    monkeypatch.setattr(sky_api, "job_log", lambda name, job_id, lines: [f"{name}, job {job_id}"])
    assert cluster.log_tail(3) == ["night, job None"]


def _job(number: int, status: JobStatus) -> ClusterJobRecord:
    return ClusterJobRecord(
        job_id=number, job_name="cell", username="u", user_hash="h", submitted_at=1.0, resources="", status=status,
        log_path="",
    )  # fmt: skip


@pytest.mark.parametrize(
    ("jobs", "newest"),
    [
        ([], (None, None)),
        ([_job(1, JobStatus.RUNNING)], (1, "RUNNING")),
        ([_job(2, JobStatus.FAILED_SETUP), _job(1, JobStatus.CANCELLED)], (2, "FAILED_SETUP")),
    ],
)
def test_the_newest_job_of_a_machine(
    monkeypatch: pytest.MonkeyPatch, jobs: list[ClusterJobRecord], newest: tuple[int | None, str | None]
) -> None:
    statuses = {jobs[0].job_id: jobs[0].status} if jobs else {None: None}  # as sky.core says it over ssh
    of_core = {"queue": jobs, "job_status": statuses}

    def get(name: str) -> Any:
        full = REQUEST_NAME_PREFIX + name
        return decoders.get_decoder(full)(encoders.get_encoder(full)(of_core[name]))

    sdk = SimpleNamespace(get=get, exceptions=sky_server.sdk().exceptions)
    for name in of_core:
        setattr(sdk, name, lambda *asked, name=name, **how: name)
    monkeypatch.setattr(sky_server, "sdk", lambda: sdk)
    monkeypatch.setattr(sky_server, "ensure_server", lambda: None)
    assert sky_api.newest_job("night") == newest


LATE = requests.exceptions.ReadTimeout("Read timed out. (read timeout=5)")
CUT = requests.exceptions.ChunkedEncodingError("the proxy closed the connection")
RACE = (
    "botocore.exceptions.ClientError: An error occurred (InvalidPermission.Duplicate) when calling the "
    "AuthorizeSecurityGroupIngress operation: the specified rule already exists"
)
Late = Literal["running", "done", "lost", "unread", "read"]
"""What became of a launch that the server was too busy to answer."""

FORGOTTEN = RuntimeError("Failed to get request request-1: 404")


class FakeSdk:
    """SkyPilot's SDK in front of one node: each launch that arrives queues a job there."""

    exceptions = SimpleNamespace(**{
        name: type(name, (Exception,), {})
        for name in (
            "ApiServerConnectionError", "ServerTemporarilyUnavailableError", "RequestInterruptedError", "ClientError",
            "ClusterDoesNotExist", "ResourcesUnavailableError",
        )
    })  # fmt: skip

    def __init__(self, answers: list[Exception], *, queues: bool = False, late: Late | None = None) -> None:
        self.answers, self.queues, self.jobs, self.sent = list(answers), queues, list[int](), 0
        self.late, self.running, self.followed = late, list[SimpleNamespace](), ""

    def launch(self, task: object, cluster_name: str) -> str:
        self.sent += 1
        late, self.late = self.late, "read" if self.late == "unread" else None
        if late not in ("lost", "unread") and (self.queues or not self.answers):
            self.jobs.append(len(self.jobs) + 1)
        if late == "read":  # it stood still: the first comes from its socket only now, before this one
            self.jobs.append(len(self.jobs) + 1)
            self.running = [SimpleNamespace(name="sky.launch", request_id=each) for each in ("request-2", "launch")]
            return "request-2"
        if late == "running":
            self.running = [SimpleNamespace(name=f"sky.{name}", request_id=name) for name in ("down", "launch")]
        if late is not None:
            raise LATE
        return f"request-{self.sent}"

    def api_cancel(self, request_ids: list[str]) -> str:
        assert request_ids == ["request-2"]
        self.jobs.remove(2)
        return "cancelled"

    def api_status(self, cluster_name: str) -> list[SimpleNamespace]:
        return self.running

    def down(self, cluster_name: str, purge: bool) -> str:
        self.sent += 1
        return self.get("")

    def get(self, request_id: str) -> str:
        if self.answers:
            raise self.answers.pop(0)
        return "down"

    def stream_and_get(self, request_id: str, output_stream: TextIO) -> Any:
        self.followed = request_id
        if self.answers:
            error = self.answers.pop(0)
            if isinstance(error, self.exceptions.ResourcesUnavailableError):
                output_stream.write(f"{RACE}\n")
            raise error
        return self.jobs[-1], None


ClusterOf = Callable[[FakeSdk], SkyCluster]


@pytest.fixture
def cluster_of(cluster: SkyCluster, monkeypatch: pytest.MonkeyPatch) -> ClusterOf:
    def of(sdk: FakeSdk) -> SkyCluster:
        monkeypatch.setattr(sky_server, "ensure_server", lambda: None)
        monkeypatch.setattr(sky_server, "SERVER_PAUSE_S", 0.0)
        monkeypatch.setattr("flows.clusters.skypilot.cluster.DOWN_PAUSE_S", 0.0)
        for module in (sky_server, sky_api):
            monkeypatch.setattr(module, "sdk", lambda: sdk)
        monkeypatch.setattr(sky_api, "rented", lambda names: names if sdk.jobs else [])
        monkeypatch.setattr(sky_api, "newest_job", lambda name: Job(sdk.jobs[-1], "RUNNING"))
        return cluster

    return of


@pytest.mark.parametrize(
    ("answers", "queues", "sent"),
    [
        ([CUT], True, 1),
        ([CUT, CUT, CUT], True, 1),
        ([CUT, FORGOTTEN], True, 1),
        ([FORGOTTEN], True, 1),
        ([FORGOTTEN], False, 2),
        ([FakeSdk.exceptions.RequestInterruptedError("the server restarts")], False, 2),
        ([FakeSdk.exceptions.ResourcesUnavailableError("Failed to acquire resources in us-east-1a")], False, 2),
    ],
)
def test_a_launch_that_is_cut_off_queues_one_job(
    cluster_of: ClusterOf, answers: list[Exception], queues: bool, sent: int
) -> None:
    sdk = FakeSdk(answers, queues=queues)
    cluster_of(sdk).launch(JOB)
    assert (sdk.jobs, sdk.sent) == ([1], sent)


@pytest.mark.parametrize(("late", "sent"), [("running", 1), ("done", 1), ("lost", 2), ("unread", 2)])
def test_a_launch_that_a_busy_server_took_without_a_word_queues_one_job(
    cluster_of: ClusterOf, late: Late, sent: int
) -> None:
    sdk = FakeSdk([], late=late)
    cluster_of(sdk).launch(JOB)
    assert (sdk.jobs, sdk.sent) == ([1], sent)
    assert sdk.followed == {"running": "launch", "done": "", "lost": "request-2", "unread": "launch"}[late]


LOCKED = RuntimeError("Cluster 'night' is locked by 4711")


@pytest.mark.parametrize(
    ("answers", "said"), [([], 0), ([LATE], 0), ([LOCKED], 1), ([LOCKED, LATE, FakeSdk.exceptions.ClientError()], 2)]
)
def test_a_machine_that_can_not_be_taken_down_at_once_goes_down(
    cluster_of: ClusterOf, caplog: pytest.LogCaptureFixture, answers: list[Exception], said: int
) -> None:
    sdk = FakeSdk(answers)
    cluster_of(sdk).down()
    assert (sdk.answers, sdk.sent) == ([], len(answers) + 1)
    assert ["night is not down, and tried again: " in line for line in caplog.messages] == [True] * said


def test_what_never_goes_down_is_an_error(cluster_of: ClusterOf) -> None:
    sdk = FakeSdk([LOCKED] * 9)
    with pytest.raises(RuntimeError, match="locked by 4711"):
        cluster_of(sdk).down()
    assert sdk.sent == 3
