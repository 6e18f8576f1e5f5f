"""Prefect of our own: what a killed orchestrator left is ended by the next start; each new home has a database."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from flows.terminal.flow_process import MODULE, end_orphans
from flows.terminal.prefect_session import DATABASE, CommandFailed, lay_database, our_environment
from tasks.host import process_group
from tests.busy_machine import PATIENCE_S
from tests.command_lines import command_of
from tests.fake_run import write_user_configs
from tests.flows.conftest import Sweep
from tests.tasks.test_cell import wait_until


def left_of(folder: Path) -> list[int]:
    groups = map(process_group.recorded, folder.rglob(f"*{process_group.RECORD_SUFFIX}"))
    ours = [group for group in groups if group is not None and "SESSION" in group.variable]
    return [pid for group in ours for pid in process_group.members(group)]


def left_with(folder: Path, word: str) -> list[int]:
    return [pid for pid in left_of(folder) if word in command_of(pid)]


@pytest.fixture
def sleeper() -> Iterator[Callable[..., subprocess.Popen[bytes]]]:
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
    wait_until(lambda: all(process_group.members(group) for group in groups), "they run")
    end_orphans(tmp_path)
    assert orphan.wait(PATIENCE_S) == -signal.SIGTERM and (beside.poll(), living.poll()) == (None, None)
    assert [path.name for path in tmp_path.iterdir()] == [f"1{process_group.RECORD_SUFFIX}"]


@pytest.mark.slow(14)
def test_the_server_of_a_killed_orchestrator_is_ended_by_the_next_start(tmp_path: Path, start_sweep: Sweep) -> None:
    command = ("run", write_user_configs(tmp_path, "ar"), "--run-id", "r1")
    killed = start_sweep(*command, FAKE_ENGINE_TOKEN_S="0.05")
    try:
        wait_until(lambda: left_with(tmp_path, "uvicorn") and left_with(tmp_path, "tasks.cell"), "it measures", 120)
        orphans = left_with(tmp_path, "uvicorn")
        for pid in [killed.pid, *left_with(tmp_path, MODULE)]:
            os.kill(pid, signal.SIGKILL)
        killed.communicate()
        assert set(orphans) <= set(left_of(tmp_path)), "Prefect's server outlives whoever started it"
        again = start_sweep(*command)
        wait_until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in orphans), "the next start ends it", 120)
        again.send_signal(signal.SIGINT)
        said, _ = again.communicate(timeout=PATIENCE_S)
        assert again.returncode == 130, said
    finally:
        for pid in left_of(tmp_path):
            os.kill(pid, signal.SIGKILL)
    assert left_of(tmp_path) == [] and not list((tmp_path / "state" / "prefect").rglob("*.group.json"))


def laid(home: Path) -> Path:
    home.mkdir()
    lay_database(home, our_environment(home, None))
    return home / DATABASE


def test_each_new_home_has_an_empty_database_of_its_own(tmp_path: Path) -> None:
    with closing(sqlite3.connect(laid(tmp_path / "first"))) as first:
        assert first.execute("select count(*) from flow_run").fetchone() == (0,)
        first.execute("drop table flow_run")
    assert [each.name for each in (tmp_path / "first").iterdir()] == [DATABASE], "nothing half is left"
    with closing(sqlite3.connect(laid(tmp_path / "second"))) as second:
        assert second.execute("select count(*) from flow_run").fetchone() == (0,)


def test_a_home_that_has_a_database_keeps_it(tmp_path: Path) -> None:
    (tmp_path / DATABASE).write_text("a run's history")
    lay_database(tmp_path, {})
    assert (tmp_path / DATABASE).read_text() == "a run's history"


def test_a_prefect_that_makes_none_is_an_error_with_what_it_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = tmp_path / "python"
    broken.write_text("#!/bin/sh\necho 'no such revision' >&2\nexit 1\n")
    broken.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(broken))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    with pytest.raises(CommandFailed, match="no such revision"):
        laid(tmp_path / "home")
    assert not list((tmp_path / "cache").rglob("*.db"))
