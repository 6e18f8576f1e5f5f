"""`python -m flows.automations` where no Prefect server can be talked to: one line with the remedy."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from configs.checkout import ROOT


def automations(home: Path, *arguments: str, **settings: str) -> subprocess.CompletedProcess[str]:
    env = {name: value for name, value in os.environ.items() if not name.startswith("PREFECT_")}
    env |= {"PREFECT_HOME": str(home), "PYTHONPATH": str(ROOT), "PREFECT_SERVER_ALLOW_EPHEMERAL_MODE": "false"}
    command = [sys.executable, "-m", "flows.automations", *arguments]
    return subprocess.run(command, cwd=home, env=env | settings, text=True, capture_output=True, check=False)


@pytest.fixture
def not_prefect() -> Iterator[str]:
    """A web server that is no Prefect server: it answers every POST with 501."""
    with HTTPServer(("127.0.0.1", 0), BaseHTTPRequestHandler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"127.0.0.1:{server.server_port}/api"
        server.shutdown()


@pytest.fixture
def closed() -> Iterator[str]:
    """An address where nobody listens, and nobody will meanwhile."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        yield f"127.0.0.1:{bound.getsockname()[1]}/api"


@pytest.mark.parametrize(("where", "said"), [("closed", "connection attempts failed"), ("not_prefect", "status 501")])
def test_a_server_that_does_not_answer_is_one_line_with_its_address_and_no_password(
    tmp_path: Path, request: pytest.FixtureRequest, where: str, said: str
) -> None:
    address = request.getfixturevalue(where)
    done = automations(tmp_path, PREFECT_API_URL=f"http://somebody:open-sesame@{address}")
    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    assert line.startswith(f"flows.automations: PREFECT_API_URL: no Prefect server answers at http://{address} (")
    assert said in line and "`prefect server start`" in line and "sesame" not in line


def test_no_server_and_no_number_of_seconds_are_one_line_each(tmp_path: Path) -> None:
    unnamed = automations(tmp_path)
    assert unnamed.returncode == 1
    (line,) = unnamed.stderr.splitlines()
    assert line.startswith("flows.automations: PREFECT_API_URL names no Prefect server: start one")
    wrong = automations(tmp_path, "ninety")
    assert (wrong.returncode, wrong.stderr) == (
        1,
        "flows.automations: silence 'ninety': give whole seconds, or leave it out\n",
    )
