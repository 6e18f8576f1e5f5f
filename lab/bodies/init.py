"""The first process of a body, once it is made: starts the ssh server and reaps orphans (standard library only).

A first process that does not reap leaves every orphan a zombie, and `kill -0` calls a stopped engine alive. Beside the
server it runs what cloud-init would run at a first boot; SIGTERM, which `shutdown` sends, powers the body off.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys

from lab.bodies.body import BodySpec
from lab.paths import FIRST_BOOT, INSIDE, POWERED_OFF


def main() -> int:
    """Run the command given as arguments; its end is the body's end."""
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(POWERED_OFF))
    server = subprocess.Popen(sys.argv[1:])
    env = os.environ | BodySpec.read(INSIDE.instance).environment
    subprocess.Popen(["/bin/sh", str(INSIDE.instance / FIRST_BOOT)], env=env)
    while True:
        pid, status = os.wait()
        if pid == server.pid:
            return os.waitstatus_to_exitcode(status)


if __name__ == "__main__":
    sys.exit(main())
