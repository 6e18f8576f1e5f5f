"""Brings the lab's cloud up: makes its folders, starts its process, and waits until it is ready."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from lab.bake import bake_python
from lab.bodies.privileges import environment, exposed_paths, unprivileged
from lab.control.daemon_spec import DaemonSpec
from lab.errors import LabError
from lab.places import FLEET_UID, KNOWN_MODELS, Places
from tasks.host.environment_spec import user_cache

START_S = 60.0
"""How long the cloud may take to come up; 3 s on a quiet machine."""

_TICK_S = 0.1


class Ports(NamedTuple):
    """On 127.0.0.1: `port` of the cloud's door, `behind_port` where no weather is, `api_port` for a SkyPilot server."""

    port: int
    behind_port: int
    api_port: int


def make_folders(places: Places) -> None:
    """Make the lab's root and the folders in it; only `fleet` belongs to the unprivileged user."""
    places.root.mkdir(mode=0o755)
    places.marker.touch()
    for folder in (places.home, places.scratch):
        folder.mkdir(mode=0o700)
    places.controls.mkdir()
    places.fleet.mkdir()
    places.shared.mkdir()
    _copy_known_models(places.shared / KNOWN_MODELS)
    if os.geteuid() == 0:
        for folder in (places.fleet, places.shared):
            os.chown(folder, FLEET_UID, FLEET_UID)


def _copy_known_models(place: Path) -> None:
    """Only what vLLM knows of models' classes: each that it doesn't know takes a process that imports vLLM again.

    Its files are for their owner's eyes, who is no user of a body's, hence a copy for everybody.
    """
    place.mkdir()
    cache = user_cache() / KNOWN_MODELS
    for file in cache.glob("*/modelinfos/*.json"):  # an engine that is being started has files of other names there
        copy = place / file.relative_to(cache)
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(file, copy)


def start_daemon(places: Places, python: Path, layer: Path) -> subprocess.Popen[bytes]:
    """Start the cloud in a session of its own.

    Args:
        places: the lab's folders.
        python: interpreter of the environment `lab`.
        layer: the baked layer, from which bodies are made.
    """
    root, exposed = places.root, exposed_paths(layer)
    spec = DaemonSpec(str(root), str(layer), str(user_cache()), str(bake_python()), tuple(map(str, exposed)))
    command = unprivileged([python, "-m", "lab.control.daemon", spec.dump()], [root], exposed)
    with places.log.open("ab") as log:
        return subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            env=environment(root),
            cwd="/",
            start_new_session=True,
        )


def wait_ready(places: Places, process: subprocess.Popen[bytes]) -> Ports:
    """Where the cloud listens, once it does.

    Raises:
        LabError: it ended, or took longer than `START_S`.
    """
    wait_until(lambda: places.ready.exists() or process.poll() is not None, START_S)
    if not places.ready.exists():
        tail = places.log.read_text(encoding="utf-8", errors="replace").strip().splitlines()[-1:]
        raise LabError(f"the lab's cloud did not come up: {''.join(tail) or 'it says nothing'} ({places.log})")
    return Ports(**json.loads(places.ready.read_text(encoding="utf-8")))


def wait_until(done: Callable[[], bool], timeout_s: float) -> None:
    """Wait until `done` says so or the time is over; does not tell which."""
    deadline = time.monotonic() + timeout_s
    while not done() and time.monotonic() < deadline:
        time.sleep(_TICK_S)
