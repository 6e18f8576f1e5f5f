"""SkyPilot's API server, killed: the next call has one that answers, and nothing of the old one is left."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from flows.clusters.sky_leftovers import SERVER
from lab.ports import api_port
from tests.cloud.checks import SHORT, wait_until
from tests.fake_run import ROOT

pytestmark = pytest.mark.cloud

ASK = "from flows.clusters import sky_api; print('clusters:', sky_api.rented())"


@pytest.fixture
def home() -> Iterator[Path]:
    """A home for SkyPilot; whatever runs there is ended after the test."""
    with tempfile.TemporaryDirectory(prefix="sh", dir=SHORT) as folder:
        yield Path(folder)
        for process in _processes(Path(folder)):
            process.kill()


def _processes(home: Path) -> list[psutil.Process]:
    """The API server of a home, and its children, also orphaned ones."""
    found = []
    for process in psutil.process_iter():
        try:
            if any(file.path.startswith(str(home)) for file in process.open_files()):
                found.append(process)
        except (psutil.NoSuchProcess, psutil.AccessDenied):
            continue
    return found


def _ask(home: Path, port: int) -> None:
    env = os.environ | {
        "SPECSWEEP_SKY_HOME": str(home), "SKYPILOT_API_SERVER_LOCAL_PORT": str(port), "PYTHONPATH": str(ROOT),
    }  # fmt: skip
    said = subprocess.run([sys.executable, "-c", ASK], env=env, cwd=ROOT, capture_output=True, text=True)
    assert said.stdout.splitlines()[-1:] == ["clusters: []"], said.stdout + said.stderr


def test_a_killed_server_is_replaced_and_its_children_end(home: Path) -> None:
    port = api_port()
    _ask(home, port)
    first = _processes(home)
    (server,) = [process for process in first if SERVER in " ".join(process.cmdline())]
    children = [process for process in first if process != server]
    assert children
    server.send_signal(signal.SIGKILL)
    wait_until(lambda: not server.is_running() or server.status() == psutil.STATUS_ZOMBIE, "the server is dead")
    assert [child for child in children if child.is_running()], "SkyPilot's children outlive it"

    with (home / ".sky" / "api_server" / "server.log").open() as log:
        reader = subprocess.Popen(["sleep", "1000"], stdin=log)  # as `less` would
        _ask(home, port)
        assert reader.poll() is None, "who reads the log is left alone"
        reader.kill()
        reader.wait()
    assert not [child for child in children if child.is_running()]
    again = _processes(home)
    assert len([process for process in again if SERVER in " ".join(process.cmdline())]) == 1
    _ask(home, port)
    assert {process.pid for process in again} <= {process.pid for process in _processes(home)}, "the same server"
