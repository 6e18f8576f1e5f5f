"""Whoever runs the night dies: the next start adopts what is up, and if there is none the reaper removes it."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from lab.cloud import Lab
from tests.cloud.checks import Sky
from tests.cloud.night import Night, wait_for
from tests.tasks.test_cell import processes_with

pytestmark = [pytest.mark.cloud, pytest.mark.slow]

PATIENCE_S = 900.0
LAST_COMMIT = "steps/eval-tiny/commit.json"
"""Held back, no cell gets measured: its node works until the test lets it."""


@pytest.fixture
def night(lab: Lab, tmp_path: Path) -> Iterator[Night]:
    yield Night(lab, tmp_path, 2)
    for pid in _orchestrators(tmp_path):
        os.kill(pid, signal.SIGKILL)


def _orchestrators(folder: Path) -> list[int]:
    """Processes of the command, its flow and its Prefect; not SkyPilot's API server, which serves others too."""
    ours = processes_with(str(folder / "state"))
    return [pid for pid in ours if "flows.terminal" in _command(pid) or pid in processes_with("SPECSWEEP_SESSION=")]


def _command(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()
    except (FileNotFoundError, ProcessLookupError):
        return ""  # gone


def _both_measure(night: Night) -> bool:
    """Whether both nodes are in their last step."""
    return all((beat := night.heartbeat(cell)) and beat.step == "eval-tiny" for cell in (0, 1))


def _killed_with_two_clusters_up(night: Night) -> None:
    process = night.start()
    wait_for(lambda: _both_measure(night), "both nodes are in their last step", night, process, PATIENCE_S)
    for pid in _orchestrators(night.folder):
        os.kill(pid, signal.SIGKILL)
    process.wait()
    assert [len(night.living(cell)) for cell in (0, 1)] == [1, 1]


def _wait(true: object, what: str, night: Night) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not true():  # type: ignore[operator]
        assert time.monotonic() < deadline, f"{what}\n{night.said()}"
        time.sleep(0.2)


def test_the_next_start_adopts_both_clusters_and_outlives_the_api_server(night: Night, sky: Sky) -> None:
    with night.lab.writes_held(LAST_COMMIT):
        _killed_with_two_clusters_up(night)
        process = night.start()
        adopted = lambda: night.flow_log.count("adopted the cluster") == 2  # noqa: E731
        wait_for(adopted, "both clusters are adopted", night, process, PATIENCE_S)
        stopped = sky("api", "stop")
        assert stopped.returncode == 0, stopped.stderr
    process.wait(PATIENCE_S)
    assert process.returncode == 0, night.said()
    for cell in (0, 1):
        assert night.is_measured(cell)
        assert night.ends(cell) == ["done"], "one cluster, launched once"
        assert [attempt.outcome for attempt in night.attempts(cell)] == ["completed"]
        assert len(night.requests(cell)) == len(set(night.requests(cell))), "nothing was asked twice"
        assert night.living(cell) == []


def test_if_nobody_starts_it_again_the_reaper_removes_both(night: Night) -> None:
    with night.lab.writes_held(LAST_COMMIT):
        _killed_with_two_clusters_up(night)
        dry = night.sweep("reap", "--dry-run")
        assert dry.returncode == 0, dry.stdout + dry.stderr
        assert [len(night.living(cell)) for cell in (0, 1)] == [1, 1], "they measure: a live lease owns them"
    _wait(lambda: all(night.is_measured(cell) and night.attempts(cell) for cell in (0, 1)), "the nodes end", night)
    dry = night.sweep("reap", "--dry-run")
    assert dry.returncode == 0 and night.cluster(0) in dry.stdout, dry.stdout + dry.stderr
    assert [len(night.living(cell)) for cell in (0, 1)] == [1, 1], "a dry run does nothing"
    reaped = night.sweep("reap")
    assert reaped.returncode == 0, reaped.stdout + reaped.stderr
    assert "USD" in reaped.stdout
    assert [each for each in night.lab.instances() if each.alive] == []
    assert [night.ends(cell) for cell in (0, 1)] == [["stopped"], ["stopped"]]


def test_ctrl_c_takes_the_clusters_down_and_keeps_what_is_measured(night: Night) -> None:
    process = night.start()
    with night.lab.writes_held(LAST_COMMIT):
        wait_for(lambda: _both_measure(night), "both nodes are in their last step", night, process, PATIENCE_S)
        process.send_signal(signal.SIGINT)
        process.wait(PATIENCE_S)
    assert process.returncode == 130, night.said()
    assert [each for each in night.lab.instances() if each.alive] == []
    for cell in (0, 1):
        assert night.ends(cell) == ["stopped"]
        assert night.ledger.read_commit(night.keys[cell], "parity") is not None
    assert _orchestrators(night.folder) == []
