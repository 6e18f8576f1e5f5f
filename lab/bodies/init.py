"""The first process of a body, once it is made: starts the ssh server and reaps orphans (standard library only).

A first process that does not reap leaves every orphan a zombie, and `kill -0` calls a stopped engine alive.
"""

from __future__ import annotations

import os
import subprocess
import sys


def main() -> int:
    """Run the command given as arguments; its end is the body's end."""
    server = subprocess.Popen(sys.argv[1:])
    while True:
        pid, status = os.wait()
        if pid == server.pid:
            return os.waitstatus_to_exitcode(status)


if __name__ == "__main__":
    sys.exit(main())
