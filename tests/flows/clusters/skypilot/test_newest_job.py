"""A machine that came up without a job has none, whatever way SkyPilot's own serializers take. Its SDK is a fake."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from sky.schemas.api.responses import ClusterJobRecord
from sky.server.constants import REQUEST_NAME_PREFIX
from sky.server.requests.serializers import decoders, encoders
from sky.skylet.job_lib import JobStatus

from flows.clusters.skypilot import api as sky_api
from flows.clusters.skypilot import server as sky_server


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
    of_core = {
        "queue": jobs,
        "job_status": {jobs[0].job_id: jobs[0].status} if jobs else {None: None},  # as sky.core says it over ssh
    }

    def ask(name: str) -> Any:
        return lambda *asked, **how: name

    def get(name: str) -> Any:
        full = REQUEST_NAME_PREFIX + name
        return decoders.get_decoder(full)(encoders.get_encoder(full)(of_core[name]))

    sdk = SimpleNamespace(
        queue=ask("queue"), job_status=ask("job_status"), get=get, exceptions=sky_server.sdk().exceptions
    )
    monkeypatch.setattr(sky_server, "sdk", lambda: sdk)
    monkeypatch.setattr(sky_server, "ensure_server", lambda: None)
    assert sky_api.newest_job("night") == newest
