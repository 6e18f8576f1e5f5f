"""The first process of the Slurm machine: starts its daemons in the foreground and reaps whatever is orphaned."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

MUNGE_SOCKET = Path("/run/munge/munge.socket.2")
"""Where libmunge looks; Slurm's daemons can't tell who asks before it is there."""


def commands(root: Path) -> dict[str, list[str]]:
    """Command lines by name; munge first, the others need it."""
    munge = [
        f"--socket={MUNGE_SOCKET}", "--key-file=/etc/munge/munge.key", "--pid-file=/run/munge/munged.pid",
        f"--seed-file={root}/state/munge.seed", f"--log-file={root}/log/munge.log",
    ]  # fmt: skip
    return {
        "munged": ["/usr/sbin/munged", "--foreground", *munge],
        "slurmctld": ["/usr/sbin/slurmctld", "-D"],
        "slurmd": ["/usr/sbin/slurmd", "-D"],
        "sshd": ["/usr/sbin/sshd", "-D", "-e", "-f", str(root / "state" / "sshd_config")],
    }


def main() -> int:
    root = Path(sys.argv[1])
    MUNGE_SOCKET.parent.mkdir(mode=0o755)
    started: dict[int, str] = {}
    for name, argv in commands(root).items():
        with (root / "log" / f"{name}.log").open("ab") as log:
            process = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        started[process.pid] = name
        while not MUNGE_SOCKET.exists():
            if (code := process.poll()) is not None:
                return _complain(name, code)
            time.sleep(0.05)
    while True:
        pid, status = os.wait()
        if pid in started:
            return _complain(started[pid], os.waitstatus_to_exitcode(status))


def _complain(name: str, code: int) -> int:
    print(f"{name} ended with code {code}", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main())
