"""A launch whose answer is cut off is asked for again, and never queues a second job. SkyPilot's SDK is a fake."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any, TextIO

import pytest
import requests

from flows.clusters.protocol import CellJob
from flows.clusters.skypilot import server as sky_server
from flows.clusters.skypilot.api import Job
from flows.clusters.skypilot.cluster import SkyCluster
from flows.clusters.skypilot.launch_watch import LaunchBounds

CUT = requests.exceptions.ChunkedEncodingError("the proxy closed the connection")
RACE = (
    "botocore.exceptions.ClientError: An error occurred (InvalidPermission.Duplicate) when calling the "
    "AuthorizeSecurityGroupIngress operation: the specified rule already exists"
)
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

    def __init__(self, answers: list[Exception], *, queues: bool) -> None:
        self.answers, self.queues, self.jobs, self.sent = list(answers), queues, list[int](), 0

    def launch(self, task: object, cluster_name: str) -> str:
        self.sent += 1
        if self.queues or not self.answers:
            self.jobs.append(len(self.jobs) + 1)
        return f"request-{self.sent}"

    def stream_and_get(self, request_id: str, output_stream: TextIO) -> Any:
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
    monkeypatch.setattr(sky_server, "sdk", lambda: sdk)
    monkeypatch.setattr(sky_server, "ensure_server", lambda: None)
    monkeypatch.setattr(sky_server, "SERVER_PAUSE_S", 0.0)
    api = "flows.clusters.skypilot.api"
    monkeypatch.setattr(f"{api}.rented", lambda names: names if sdk.jobs else [])
    monkeypatch.setattr(f"{api}.newest_job", lambda name: Job(sdk.jobs[-1], "RUNNING"))
    bounds = LaunchBounds(1.0, lambda: None, lambda: True)
    cluster = SkyCluster("night", lambda job: nullcontext(), None, tmp_path / "launch.log", lambda: False, bounds)
    cluster.launch(CellJob("s3://b/p", "night", "0123456789abcdef"))
    assert (sdk.jobs, sdk.sent) == ([1], sent)
