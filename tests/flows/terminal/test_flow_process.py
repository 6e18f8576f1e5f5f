"""What a killed orchestrator leaves is ended by the next start of any sweep; flows that live are left alone."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from flows.terminal.flow_process import MODULE, end_orphans
from tasks.host import process_group
from tests.command_lines import command_of
from tests.fake_cloud import wait_for
from tests.fake_run import write_user_configs
from tests.flows.conftest import Sweep


def left_of(folder: Path) -> list[int]:
    """Processes of recorded sessions below a folder."""
    records = list(folder.rglob(f"*{process_group.RECORD_SUFFIX}"))
    groups = [group for path in records if (group := process_group.recorded(path)) is not None]
    return [pid for group in groups if "SESSION" in group.variable for pid in process_group.members(group)]


def commands(pids: list[int]) -> str:
    return "\n".join(map(command_of, pids))


@pytest.fixture
def sleeper() -> Iterator[Callable[..., subprocess.Popen[bytes]]]:
    """Starts processes of a group that do nothing; killed after the test."""
    started: list[subprocess.Popen[bytes]] = []

    def start(group: process_group.ProcessGroup, *arguments: str) -> subprocess.Popen[bytes]:
        argv = [sys.executable, "-c", "import signal; signal.pause()", *arguments]
        started.append(subprocess.Popen(argv, env=os.environ | group.env))
        return started[-1]

    yield start
    for process in started:
        process.kill()
        process.wait()


def test_what_has_no_flow_any_more_is_ended_and_another_flows_is_not(
    tmp_path: Path, sleeper: Callable[..., subprocess.Popen[bytes]]
) -> None:
    groups = [process_group.new_group(process_group.SESSION_VARIABLE) for _ in range(2)]
    for number, group in enumerate(groups):
        process_group.record(group, tmp_path / f"{number}{process_group.RECORD_SUFFIX}")
    orphan, beside, living = sleeper(groups[0]), sleeper(groups[1]), sleeper(groups[1], "-m", MODULE)
    wait_for(lambda: all(process_group.members(group) for group in groups), "they run")
    end_orphans(tmp_path)
    assert orphan.wait(60) == -signal.SIGTERM
    assert (beside.poll(), living.poll()) == (None, None)
    assert [path.name for path in tmp_path.iterdir()] == [f"1{process_group.RECORD_SUFFIX}"]


@pytest.mark.slow(14)
def test_the_server_of_a_killed_orchestrator_is_ended_by_the_next_start(tmp_path: Path, start_sweep: Sweep) -> None:
    write_user_configs(tmp_path, "ar")
    command = ("run", str(tmp_path / "sweep.yaml"), "--run-id", "r1")
    killed = start_sweep(*command, FAKE_ENGINE_TOKEN_S="0.05")
    server = lambda: [pid for pid in left_of(tmp_path) if "uvicorn" in commands([pid])]  # noqa: E731
    try:
        wait_for(lambda: bool(server()) and "tasks.cell" in commands(left_of(tmp_path)), "it measures", 120)
        orphans = server()
        for pid in [killed.pid, *(pid for pid in left_of(tmp_path) if MODULE in commands([pid]))]:
            os.kill(pid, signal.SIGKILL)
        killed.communicate()
        assert set(orphans) <= set(left_of(tmp_path)), "Prefect's server outlives whoever started it"
        again = start_sweep(*command)
        wait_for(lambda: not any(Path(f"/proc/{pid}").exists() for pid in orphans), "the next start ends it", 120)
        again.send_signal(signal.SIGINT)
        said, _ = again.communicate(timeout=120)
        assert again.returncode == 130, said
    finally:
        for pid in left_of(tmp_path):
            os.kill(pid, signal.SIGKILL)
    assert left_of(tmp_path) == [] and not list((tmp_path / "state" / "prefect").rglob("*.group.json"))
