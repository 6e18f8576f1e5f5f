"""Through a real Prefect server and worker: the deployment runs, Ctrl-C leaves nothing, a lost host heals."""

from __future__ import annotations

import json
import os
import signal
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from flows.terminal.prefect_session import PrefectSession
from tasks.host import process_group
from tests.busy_machine import BUSY_MACHINE
from tests.fake_cloud import children
from tests.fake_run import FakeRun
from tests.flows.conftest import Sweep
from tests.prefect_api import SELDOM_S, api
from tests.tasks.test_cell import processes_with, wait_until

PATIENCE_S = 300.0
"""For what takes seconds on an idle machine; beside two other rows of tests Prefect's start alone takes two minutes."""


def committed_once(run: FakeRun) -> None:
    """Every step has one commit, and no row of it was measured twice."""
    for step in ("smoke", "throughput", "parity", "eval-tiny"):
        commit = run.commit(step)
        assert commit.verdict == "ok" or set(commit.reasons) <= set(BUSY_MACHINE), commit.reasons
    requests = [row["request_id"] for row in run.rows("throughput", "requests")]
    assert len(requests) == len(set(requests))


@pytest.mark.slow(62)
def test_ctrl_c_leaves_no_process_and_the_next_start_goes_on(tmp_path: Path, start_sweep: Sweep) -> None:
    run = FakeRun(tmp_path)
    arguments = ("demo", "--sweep", "sweep.yaml", "--run-id", "r1")  # the flow's process works in the clone
    first = start_sweep(*arguments, cwd=tmp_path, FAKE_ENGINE_TOKEN_S="0.01")
    wait_until(lambda: run.ledger.read_commit(run.key, "smoke") is not None, "the smoke step", PATIENCE_S)
    first.send_signal(signal.SIGINT)
    said, _ = first.communicate(timeout=PATIENCE_S)
    assert first.returncode == 130, said
    assert "run the same command again" in said
    assert processes_with(str(tmp_path / "state")) == []
    assert [attempt.outcome for attempt in run.attempts()] == ["stopped"]

    second = start_sweep(*arguments, cwd=tmp_path, FAKE_ENGINE_TOKEN_S="0.004")
    said, _ = second.communicate(timeout=PATIENCE_S)
    assert second.returncode == 0, said
    assert any(line.startswith("page:") and line.endswith("report.html") for line in said.splitlines())
    committed_once(run)
    assert processes_with(str(tmp_path / "state")) == []

    third = start_sweep(*arguments, cwd=tmp_path)
    said, _ = third.communicate(timeout=PATIENCE_S)
    assert third.returncode == 0 and "is measured" in said


@pytest.mark.slow(51)
def test_a_host_that_dies_heals_without_a_person(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = FakeRun(tmp_path)
    settings = {
        "SPECSWEEP_STORE": run.store_url,
        "SPECSWEEP_STATE": str(tmp_path / "state"),
        "FAKE_ENGINE_TOKEN_S": "0.05",
        "FAKE_ENGINE_COUNT": str(run.counts),
    }
    with PrefectSession(tmp_path / "prefect", settings, silence_s=35) as session:
        session.start(lambda _: None)
        parameters = ["--param", f"name={json.dumps(str(tmp_path / 'sweep.yaml'))}", "--param", 'run_id="r1"']
        said = session.prefect(["deployment", "run", "sweep/demo", *parameters])
        flow_run = said.split("UUID:")[1].split()[0]
        nightly = api(session, "GET", "deployments/name/sweep/nightly")["schedules"][0]
        assert (nightly["active"], nightly["schedule"]["timezone"]) == (False, "Europe/Berlin")
        seen = lambda: api(session, "GET", f"flow_runs/{flow_run}")  # noqa: E731
        wait_until(lambda: run.ledger.read_commit(run.key, "smoke") is not None, "the smoke step", PATIENCE_S)
        wait_until(lambda: seconds_running(seen()) > 35, "a heartbeat: none, no silence", PATIENCE_S, SELDOM_S)

        kill_everything_but_the_server(session)
        assert seen()["state"]["type"] == "RUNNING", "nobody is left to say that the run is dead"
        session.spawn_worker({"FAKE_ENGINE_TOKEN_S": "0.004"})
        wait_until(lambda: seen()["state"]["type"] == "COMPLETED", "the run to heal", PATIENCE_S, SELDOM_S)
        assert seen()["run_count"] == 2
    committed_once(run)
    assert [attempt.outcome for attempt in run.attempts()] == ["lost", "completed"]
    assert processes_with(str(tmp_path / "state")) == []


def kill_everything_but_the_server(session: PrefectSession) -> None:
    """What the loss of the host that runs worker and flows looks like to a server elsewhere."""
    server = session.pid_of("server")
    for _ in range(3):  # what was forked meanwhile, too
        for pid in process_group.members(session.group):
            if pid not in (server, *children(server)):
                os.kill(pid, signal.SIGKILL)


def seconds_running(flow_run: dict[str, Any]) -> float:
    started = str(flow_run["start_time"])
    return (datetime.now(UTC) - datetime.fromisoformat(started.replace("Z", "+00:00"))).total_seconds()
