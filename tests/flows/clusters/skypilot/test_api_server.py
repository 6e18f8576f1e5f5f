"""SkyPilot's API server, killed or kept from its port: the next call has one that answers, or says why not."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import suppress
from http.server import BaseHTTPRequestHandler
from pathlib import Path

import psutil
import pytest

from configs.checkout import ROOT
from flows.clusters.skypilot.server import SERVER
from lab.control.ports import api_port, queue_port
from tests.cloud.checks import SHORT, wait_until
from tests.loopback import serving

pytestmark = pytest.mark.slow(108)

ASK = "from flows.clusters.skypilot import api as sky_api; print('clusters:', sky_api.rented())"


@pytest.fixture
def home() -> Iterator[Path]:
    """A home for SkyPilot; whatever runs there is ended after the test."""
    with tempfile.TemporaryDirectory(prefix="sh", dir=SHORT) as folder:
        yield Path(folder)
        for process in _processes(Path(folder)):
            process.kill()


def _processes(home: Path) -> list[psutil.Process]:
    found = []
    for process in psutil.process_iter():
        with suppress(psutil.NoSuchProcess, psutil.AccessDenied):
            if any(file.path.startswith(str(home)) for file in process.open_files()):
                found.append(process)
    return found


def _ask(home: Path, port: int) -> None:
    _answered(_asking(home, port))


def _asking(home: Path, port: int) -> subprocess.Popen[str]:
    own = {"SPECSWEEP_SKY_HOME": str(home), "SKYPILOT_API_SERVER_LOCAL_PORT": str(port), "PYTHONPATH": str(ROOT)}
    pipe, argv = subprocess.PIPE, [sys.executable, "-c", ASK]
    return subprocess.Popen(argv, env=os.environ | own, cwd=ROOT, text=True, stdout=pipe, stderr=pipe)


def _answered(asking: subprocess.Popen[str]) -> None:
    said, errors = asking.communicate()
    assert said.splitlines()[-1:] == ["clusters: []"], said + errors


@pytest.mark.slow(166)
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


@pytest.mark.slow(76)
@pytest.mark.parametrize(
    ("port_of", "words"), [(int, "Port {} is not available"), (queue_port, "as port {} is already in use")]
)
def test_a_port_that_an_ended_connection_keeps_is_waited_for(
    home: Path, port_of: Callable[[int], int], words: str
) -> None:
    port, log = api_port(), home / ".sky" / "api_server" / "server.log"
    said = words.format(port_of(port))
    with socket.socket() as kept:
        kept.bind(("127.0.0.1", port_of(port)))  # as after a connection: taken, and nobody answers
        asking = _asking(home, port)
        wait_until(lambda: log.exists() and said in log.read_text(), "a start has failed")
        assert asking.poll() is None
    _answered(asking)


@pytest.mark.slow(22)
def test_a_port_where_something_else_listens_is_an_error(home: Path) -> None:
    port = api_port()
    with serving(BaseHTTPRequestHandler, port):
        said, errors = _asking(home, port).communicate()
    assert not said
    assert f"`sky api start` ended with code 1: RuntimeError: Port {port} is not available" in errors
    assert f"remedy: end what listens at http://127.0.0.1:{port}" in errors
