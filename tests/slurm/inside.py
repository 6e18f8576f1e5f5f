"""Makes the inside of the Slurm machine, as root in namespaces of its own, then runs its daemons without privileges.

`unshare --mount --net --pid --uts --ipc --fork ... PYTHON -m tests.slurm.inside ROOT EXPOSED …`: its root, and what it
sees of the host's private folders, read-only. The network is loopback only, so all daemons have their usual ports;
whatever SkyPilot leaves in /tmp or /dev/shm is the machine's, not the host's.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

from lab.bodies import mounts
from lab.bodies.cover import cover
from lab.paths import FLEET_UID
from tests.slurm.layout import ADDRESS, HOST

PLAIN_USER = f"setpriv --reuid={FLEET_UID} --regid={FLEET_UID} --clear-groups --inh-caps=-all --no-new-privs".split()
"""Becomes the machine's user, for good."""


def main() -> None:
    os.umask(0o022)
    root, *exposed = map(Path, sys.argv[1:])
    for command in ("link set lo up", f"addr add {ADDRESS}/32 dev lo"):
        subprocess.run(["ip", *command.split()], check=True)
    socket.sethostname(HOST)
    cover([root], exposed)
    for name in ("etc", "run", "tmp"):
        mounts.bind(root / name, Path("/", name))
    mounts.tmpfs(Path("/dev/shm"), "1g", 0o1777)
    os.chdir("/")
    os.execvp(PLAIN_USER[0], [*PLAIN_USER, sys.executable, "-m", "tests.slurm.daemons", str(root)])


if __name__ == "__main__":
    main()
