"""What the tests of the lab share: waiting for something to become so, and that nothing was left behind."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from uuid import uuid4

from lab.cloud import Lab
from lab.weather.settings import clear_weather
from tasks.host.environments import ensure

SHORT = Path("/var/tmp")
"""A real disk, and a short path: sockets lie below a lab's folder."""

Sky = Callable[..., "subprocess.CompletedProcess[str]"]
"""Runs a `sky` command with these arguments."""

PATIENCE_S = 300.0
"""Longest wait for something that takes a second or two."""


def wait_until(done: Callable[[], bool], what: str) -> None:
    """Ask again and again until it is so; fails after a while."""
    deadline = time.monotonic() + PATIENCE_S
    while not done():
        assert time.monotonic() < deadline, f"not so after {PATIENCE_S:.0f} s: {what}"
        time.sleep(0.1)


def server_log(lab: Lab) -> str:
    """The end of what the lab's SkyPilot API server said, for a failing test."""
    path = lab.paths.home / ".sky" / "api_server" / "server.log"
    return path.read_text(encoding="utf-8", errors="replace")[-4000:] if path.exists() else "(no API server's log)"


def nothing_left(lab: Lab) -> None:
    """No instance of any region is alive (or billed), and no process of one."""
    left = [each for each in lab.instances() if each.alive]
    assert not left, f"instances left running, and billed: {left}"
    wait_until(lambda: not lab.body_processes(), "no process of an instance is left")


def fine_again(lab: Lab) -> None:
    """Room in every zone, and no weather."""
    for zone in lab.capacities():
        lab.capacity(zone, None)
    clear_weather(lab.weather)


def new_lab_folder() -> Path:
    """For a lab's folder, which makes it."""
    return SHORT / f"sl{uuid4().hex[:8]}"


def run_sky(lab: Lab, *arguments: str) -> subprocess.CompletedProcess[str]:
    """A `sky` command against a lab, in its home."""
    binary = ensure("control").parent / "sky"
    cache = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    env = os.environ | lab.env | {"HOME": str(lab.paths.home), "XDG_CACHE_HOME": cache, "NO_COLOR": "1"}
    env["PATH"] = f"{binary.parent}{os.pathsep}{env['PATH']}"
    return subprocess.run([binary, *arguments], env=env, cwd=lab.paths.home, capture_output=True, text=True)


def silent(line: str) -> None:
    """Hears nothing of a lab that comes up."""
