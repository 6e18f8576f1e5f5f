"""Brings the lab's cloud up: folders, SkyPilot's home, and its process, unprivileged and seeing only what it needs."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path

import yaml

from lab.bake import bake_python
from lab.bodies.cover import CoverSpec
from lab.errors import LabError
from lab.paths import CODE, FLEET_UID, KNOWN_MODELS, MARK, DaemonSpec, LabPaths
from tasks.host.environment_spec import cache_folder, user_cache

START_S = 60.0  # how long the cloud may take to come up; 3 s on a quiet machine
_TICK_S = 0.1


def make_folders(places: LabPaths) -> None:
    """Make the lab's root and the folders in it; only `fleet` belongs to the unprivileged user."""
    places.root.mkdir(mode=0o755)
    places.marker.touch()
    for folder in (places.home, places.scratch):
        folder.mkdir(mode=0o700)
    for folder in (places.controls, places.fleet, places.shared):
        folder.mkdir()
    _copy_known_models(places.shared / KNOWN_MODELS)
    if os.geteuid() == 0:
        for folder in (places.fleet, places.shared):
            os.chown(folder, FLEET_UID, FLEET_UID)


def _copy_known_models(place: Path) -> None:
    """A copy for bodies' users of what vLLM knows of models' classes: finding it out takes a process for each."""
    place.mkdir()
    cache = user_cache() / KNOWN_MODELS
    for file in cache.glob("*/modelinfos/*.json"):  # an engine that is being started has files of other names there
        copy = place / file.relative_to(cache)
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(file, copy)


def start_daemon(places: LabPaths, python: Path, layer: Path) -> subprocess.Popen[bytes]:
    """Start the cloud in a session of its own, with the Python of the environment `lab` and the baked `layer`."""
    root, exposed = places.root, exposed_paths(layer)
    spec = DaemonSpec(str(root), str(layer), str(user_cache()), str(bake_python()), tuple(map(str, exposed)))
    command = unprivileged([python, "-m", "lab.control.daemon", json.dumps(spec._asdict())], [root], exposed)
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


def wait_ready(places: LabPaths, process: subprocess.Popen[bytes]) -> dict[str, int]:
    """The ports on which the cloud listens, once it does. Raises LabError: it ended, or took longer than `START_S`."""
    wait_until(lambda: places.ready.exists() or process.poll() is not None, START_S)
    if not places.ready.exists():
        tail = places.log.read_text(encoding="utf-8", errors="replace").strip().splitlines()[-1:]
        raise LabError(f"the lab's cloud did not come up: {''.join(tail) or 'it says nothing'} ({places.log})")
    return dict(json.loads(places.ready.read_text(encoding="utf-8")))


def wait_until(done: Callable[[], bool], timeout_s: float) -> None:
    """Wait until `done` says so or the time is over; does not tell which."""
    deadline = time.monotonic() + timeout_s
    while not done() and time.monotonic() < deadline:
        time.sleep(_TICK_S)


CATALOGS = CODE / "catalogs"  # made-up prices in SkyPilot's own format; it never fetches a file that is there
ACCESS_KEY = "lab"  # access key and secret of the lab's account


def user_hash(root: Path) -> str:
    """SkyPilot's name for a user of this machine: part of its names on the cloud and of its ssh control sockets."""
    return hashlib.sha256(str(root).encode()).hexdigest()[:8]


def make_home(places: LabPaths, lab_python: Path) -> None:
    """Write the SkyPilot home of a lab; any interpreter will do for `lab_python`, which runs the ssh proxy command."""
    sky, aws = places.home / ".sky", places.home / ".aws"
    shutil.copytree(CATALOGS, sky / "catalogs")
    aws.mkdir()
    proxy = f"{lab_python} -I -S {CODE / 'bodies' / 'connect.py'} {places.by_ip} %h"
    (sky / "config.yaml").write_text(yaml.safe_dump({"aws": {"ssh_proxy_command": proxy}}), encoding="utf-8")
    (sky / "user_hash").write_text(user_hash(places.root), encoding="ascii")
    keys = f"[default]\naws_access_key_id = {ACCESS_KEY}\naws_secret_access_key = {ACCESS_KEY}\n"
    (aws / "credentials").write_text(keys, encoding="ascii")
    (aws / "config").write_text("[default]\nregion = us-east-1\n", encoding="ascii")


def exposed_paths(baked: Path) -> list[Path]:
    """What bodies see of the host at its own place, read-only: environments, models, interpreters, our code."""
    folders = [cache_folder(), user_cache() / "family"]
    for folder in folders:
        folder.mkdir(parents=True, exist_ok=True)
    return sorted({*folders, baked, CODE, *_interpreters(baked)})


def _interpreters(baked: Path) -> set[Path]:
    """Prefixes of the interpreters that environments were made with; without the system's own, seen anyway."""
    homes = {Path(sys.base_prefix)}
    for configuration in (*cache_folder().glob("*/pyvenv.cfg"), *baked.glob("layer/*/pyvenv.cfg")):
        for line in configuration.read_text(encoding="utf-8").splitlines():
            name, _, value = line.partition("=")
            if name.strip() == "home":
                homes.add(Path(value.strip()).resolve().parent)
    return {home for home in homes if home.exists() and home not in (Path("/usr"), Path("/"))}


def unprivileged(command: Iterable[str | Path], read_write: Iterable[Path], read_only: Iterable[Path]) -> list[str]:
    """The command line that runs `command` without privileges; an ordinary user's stays as it is.

    Root's gets a mount namespace that covers root's private folders, but for the paths given, and drops its privileges.
    """
    plain = [str(part) for part in command]
    if os.geteuid() != 0:
        return plain
    spec = CoverSpec(tuple(map(str, read_write)), tuple(map(str, read_only)), tuple(plain))
    covered = ("unshare", "--mount", "--propagation", "private", sys.executable, "-m", "lab.bodies.cover")
    return [*covered, json.dumps(spec._asdict())]


def environment(root: Path) -> dict[str, str]:
    """Variables of the daemon; none of the caller's leak into the cloud."""
    return {
        MARK: str(root),
        "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
        "LANG": "C.UTF-8",
        "PYTHONPATH": str(CODE.parent),
        "PYTHONDONTWRITEBYTECODE": "1",
        "AWS_ACCESS_KEY_ID": "lab",
        "AWS_SECRET_ACCESS_KEY": "lab",
        "AWS_DEFAULT_REGION": "us-east-1",
    }
