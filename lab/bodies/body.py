"""Makes the inside of one instance, then becomes its first process (standard library only).

`unshare -Urmnpui --fork --kill-child PYTHON -m lab.bodies.body FOLDER`: FOLDER holds `body.json` and all that it
writes. The host's root is seen read-only, with private /home, /tmp, /var/tmp, /run, /etc, /dev/shm and /proc. Then
CAP_SYS_ADMIN goes for good, so that no task can undo a mount (with it, the body's root could remount read-write).
"""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from lab.bodies import mounts
from lab.paths import BODY_SPEC, INSIDE, KNOWN_MODELS, SPEED_LOCK, SSH_SOCKET

METADATA_ADDRESS = "169.254.169.254"
SHARED_MEMORY = "2g"  # /dev/shm of a body; an engine on the CPU uses three small segments
RUNTIME = ("skypilot-runtime", "sky-user-env")  # folders of the baked layer, each seen through an overlay

SELDOM_COLLECTED = "import atexit, gc; gc.set_threshold(100_000, 50, 50); atexit.register(gc.freeze)"
"""For the runtime: SkyPilot starts thirty short Pythons a launch, each of which collects for an eighth of its time.

At its end an interpreter collects everything that it imported, another fifth; what is frozen it leaves to the kernel.
"""

CACHED = ("envs", "family")
"""Folders of the user's cache that bodies see; the rest of a body's cache is its own, and writable."""

SHIMS = {"sudo": "exit 0", "systemctl": "exit 0", "shutdown": "kill -TERM 1"}
"""Commands of the body's own: the user is root already, there is no service manager, and its end is its init's."""

SLOW_SETUP = 'case "$0" in *sky_setup_*) mkdir "$HOME/.slow-setup" 2>/dev/null && sleep {seconds:g} ;; esac'
"""In .bashrc, which SkyPilot's setup script reads twice; `mkdir` succeeds once."""


class BodySpec(NamedTuple):
    """What a body is given about itself; paths are the host's."""

    instance_id: str
    instance_type: str
    zone: str
    private_ip: str
    endpoint_port: int
    baked: str
    egress: str
    shared: str
    cache: str  # folder of the host's user that holds specsweep's environments and models
    python: str  # interpreter that the environments were made with
    read_only: Sequence[str]  # paths that appear in the body at their own place
    setup_s: float = 0.0  # so much longer takes the setup of SkyPilot's task

    @classmethod
    def read(cls, folder: Path) -> BodySpec:
        """The specification that the daemon wrote."""
        return cls(**json.loads((folder / BODY_SPEC).read_text(encoding="utf-8")))

    @property
    def host_name(self) -> str:
        """The host name that AWS gives an instance with this address."""
        return f"ip-{self.private_ip.replace('.', '-')}"

    @property
    def environment(self) -> dict[str, str]:
        """Variables of every process that the body runs for its user."""
        return {
            "HOME": str(INSIDE.home),
            "USER": "ubuntu",
            "LOGNAME": "ubuntu",
            "SHELL": "/bin/bash",
            "LANG": "C.UTF-8",
            "PATH": f"{INSIDE.home}/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
            "AWS_ENDPOINT_URL": f"http://127.0.0.1:{self.endpoint_port}",
            "AWS_DEFAULT_REGION": self.zone[:-1],
            "PYTHON": self.python,
            "SPECSWEEP_STATE": f"{INSIDE.home}/.specsweep",
            "SPECSWEEP_SPEED_LOCK": str(INSIDE.shared / SPEED_LOCK),
        }


def main() -> None:
    """Build the body and exec its first process."""
    os.umask(0o022)
    folder = Path(sys.argv[1])
    spec = BodySpec.read(folder)
    socket.sethostname(spec.host_name)
    _network(spec.private_ip)
    staged = _stage(folder, spec)
    _write_etc(spec)
    _hide_host()
    for path, place in staged.items():
        _show(path, place)
    _lay_home(spec)
    drop = ["setpriv", "--bounding-set=-sys_admin", "--inh-caps=-all"]
    server = [sys.executable, "-m", "lab.bodies.ssh_server", str(INSIDE.instance / SSH_SOCKET)]
    os.chdir("/")
    os.execvp(drop[0], [*drop, sys.executable, "-m", "lab.bodies.init", *server])


def _network(address: str) -> None:
    """Loopback only; the default route lets programs find their own address, and leads nowhere."""
    for command in (
        "link set lo up",
        f"addr add {METADATA_ADDRESS}/32 dev lo",
        f"addr add {address}/32 dev lo",
        f"route add default dev lo src {address}",
    ):
        subprocess.run(["ip", *command.split()], check=True)


def _stage(folder: Path, spec: BodySpec) -> dict[Path, Path]:
    """Keep what the body needs under /mnt, and make all else read-only; returns host path -> place under /mnt."""
    mounts.tmpfs(Path("/mnt"), "1m")
    own = {folder: INSIDE.instance, Path(spec.egress): INSIDE.egress, Path(spec.shared): INSIDE.shared}
    staged = {Path(path): INSIDE.stage / str(number) for number, path in enumerate(spec.read_only)}
    for path, place in (*own.items(), *staged.items()):
        place.mkdir(parents=True)
        mounts.bind(path, place)
    mounts.read_only(Path("/"), recursive=True)
    for place in (Path("/mnt"), *own.values()):
        mounts.writable(place)
    return staged


def _write_etc(spec: BodySpec) -> None:
    """A copy of the host's /etc with an `ubuntu` who is root here, and a uv that asks no index."""
    etc = INSIDE.instance / "etc"
    # what only the host's root may read stays behind, hence no check
    subprocess.run(["cp", "--archive", "--no-preserve=ownership", "/etc", etc], stderr=subprocess.DEVNULL, check=False)
    everybody = Path("/etc/passwd").read_text(encoding="utf-8").splitlines()
    others = [line for line in everybody if line.split(":")[0] not in ("root", "ubuntu")]
    users = [f"{name}:x:0:0::{INSIDE.home}:/bin/bash" for name in ("root", "ubuntu")]
    _write(etc / "passwd", "\n".join([*users, *others]))
    _write(etc / "hosts", f"127.0.0.1 localhost\n{spec.private_ip} {spec.host_name}")
    uv = f'no-index = true\nfind-links = ["{spec.baked}/wheels"]\npython-downloads = "never"'
    _write(etc / "uv" / "uv.toml", uv)
    exports = [f"export {name}='{value}'" for name, value in spec.environment.items()]
    with (etc / "profile").open("a", encoding="utf-8") as profile:  # last: /etc/profile itself sets PATH
        profile.write("\n" + "\n".join(exports) + "\n")


def _hide_host() -> None:
    for name in ("home", "run", "tmp", "var/tmp"):
        own = INSIDE.instance / name.replace("/", "-")
        own.mkdir()
        own.chmod(0o1777 if name.endswith("tmp") else 0o755)
        mounts.bind(own, Path("/") / name)
    mounts.bind(INSIDE.instance / "etc", Path("/etc"))
    mounts.mount("proc", Path("/proc"), "proc")
    mounts.tmpfs(Path("/dev/shm"), SHARED_MEMORY, 0o1777)


def _show(path: Path, place: Path) -> None:
    """Bring back a path that lies below a hidden folder; read-only."""
    if not (path.exists() and path.samefile(place)):
        path.mkdir(parents=True, exist_ok=True)
        mounts.bind(place, path)
        mounts.read_only(path)


def _lay_home(spec: BodySpec) -> None:
    """The user's home: shims, uv, our environments and models in its cache, the baked runtime under overlays."""
    baked, cache = Path(spec.baked), INSIDE.home / ".cache" / "specsweep"
    for folder in ("bin", ".local/bin", cache):
        (INSIDE.home / folder).mkdir(parents=True)
    for name, line in SHIMS.items():
        shim = INSIDE.home / "bin" / name
        _write(shim, f"#!/bin/sh\n{line}")
        shim.chmod(0o755)
    (INSIDE.home / ".local/bin/uv").symlink_to(baked / "uv")
    if spec.setup_s:
        _write(INSIDE.home / ".bashrc", SLOW_SETUP.format(seconds=spec.setup_s))
    for name in CACHED:
        (cache / name).symlink_to(Path(spec.cache) / name)
    shutil.copytree(INSIDE.shared / KNOWN_MODELS, cache / KNOWN_MODELS)
    for name in RUNTIME:
        upper, work = INSIDE.instance / f"{name}-upper", INSIDE.instance / f"{name}-work"
        for each in (upper, work, INSIDE.home / name):
            each.mkdir()
        mounts.overlay(baked / "layer" / name, upper, work, INSIDE.home / name)
    for packages in (INSIDE.home / RUNTIME[0]).glob("lib/python3*/site-packages"):
        _write(packages / "seldom.pth", SELDOM_COLLECTED)


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.unlink(missing_ok=True)  # what was copied may be a link, or read-only
    path.write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
