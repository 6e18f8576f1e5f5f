"""What SkyPilot's server takes is asked for again, and never sent twice: a launch, a take-down. Its SDK is a fake."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Literal, TextIO

import pytest
import requests

from flows.clusters.protocol import CellJob
from flows.clusters.skypilot import server as sky_server
from flows.clusters.skypilot.api import Job
from flows.clusters.skypilot.cluster import SkyCluster
from flows.clusters.skypilot.launch_watch import LaunchBounds

LATE = requests.exceptions.ReadTimeout("Read timed out. (read timeout=5)")
CUT = requests.exceptions.ChunkedEncodingError("the proxy closed the connection")
RACE = (
    "botocore.exceptions.ClientError: An error occurred (InvalidPermission.Duplicate) when calling the "
    "AuthorizeSecurityGroupIngress operation: the specified rule already exists"
)
JOB = CellJob("s3://b/p", "night", "0123456789abcdef")
Late = Literal["running", "done", "lost", "unread", "read"]
"""What became of a launch that the server was too busy to answer."""

FORGOTTEN = RuntimeError("Failed to get request request-1: 404")


class _Error(Exception):
    """Any of SkyPilot's."""


class FakeSdk:
    """SkyPilot's SDK in front of one node: each launch that arrives queues a job there."""

    exceptions = SimpleNamespace(
        ApiServerConnectionError=type("ApiServerConnectionError", (_Error,), {}),
        ServerTemporarilyUnavailableError=type("ServerTemporarilyUnavailableError", (_Error,), {}),
        RequestInterruptedError=type("RequestInterruptedError", (_Error,), {}),
        ClientError=type("ClientError", (_Error,), {}),
        ClusterDoesNotExist=type("ClusterDoesNotExist", (_Error,), {}),
        ResourcesUnavailableError=type("ResourcesUnavailableError", (_Error,), {}),
    )

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
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, answers: list[Exception], queues: bool, sent: int
) -> None:
    sdk = FakeSdk(answers, queues=queues)
    cluster_of(sdk, tmp_path, monkeypatch).launch(JOB)
    assert (sdk.jobs, sdk.sent) == ([1], sent)


@pytest.mark.parametrize(("late", "sent"), [("running", 1), ("done", 1), ("lost", 2), ("unread", 2)])
def test_a_launch_that_a_busy_server_took_without_a_word_queues_one_job(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, late: Late, sent: int
) -> None:
    sdk = FakeSdk([], late=late)
    cluster_of(sdk, tmp_path, monkeypatch).launch(JOB)
    assert (sdk.jobs, sdk.sent) == ([1], sent)
    assert sdk.followed == {"running": "launch", "done": "", "lost": "request-2", "unread": "launch"}[late]


LOCKED = RuntimeError("Cluster 'night' is locked by 4711")


@pytest.mark.parametrize(
    ("answers", "said"), [([], 0), ([LATE], 0), ([LOCKED], 1), ([LOCKED, LATE, FakeSdk.exceptions.ClientError()], 2)]
)
def test_a_machine_that_can_not_be_taken_down_at_once_goes_down(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    answers: list[Exception],
    said: int,
) -> None:
    sdk = FakeSdk(answers)
    cluster_of(sdk, tmp_path, monkeypatch).down()
    assert (sdk.answers, sdk.sent) == ([], len(answers) + 1)
    assert len(caplog.messages) == said and all(
        "night is not down, and tried again: " in line for line in caplog.messages
    )


def test_what_never_goes_down_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sdk = FakeSdk([LOCKED] * 9)
    with pytest.raises(RuntimeError, match="locked by 4711"):
        cluster_of(sdk, tmp_path, monkeypatch).down()
    assert sdk.sent == 3


def cluster_of(sdk: FakeSdk, folder: Path, monkeypatch: pytest.MonkeyPatch) -> SkyCluster:
    monkeypatch.setattr(sky_server, "sdk", lambda: sdk)
    monkeypatch.setattr(sky_server, "ensure_server", lambda: None)
    monkeypatch.setattr(sky_server, "SERVER_PAUSE_S", 0.0)
    monkeypatch.setattr("flows.clusters.skypilot.cluster.DOWN_PAUSE_S", 0.0)
    api = "flows.clusters.skypilot.api"
    monkeypatch.setattr(f"{api}.sdk", lambda: sdk)
    monkeypatch.setattr(f"{api}.rented", lambda names: names if sdk.jobs else [])
    monkeypatch.setattr(f"{api}.newest_job", lambda name: Job(sdk.jobs[-1], "RUNNING"))
    bounds = LaunchBounds(1.0, lambda: None, lambda: True)
    return SkyCluster("night", lambda job: nullcontext(), None, folder / "launch.log", lambda: False, bounds)
