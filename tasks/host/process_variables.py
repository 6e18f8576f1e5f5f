"""What a process was started with, as the kernel tells it (standard library only)."""

from __future__ import annotations

import time
from pathlib import Path

PROC = Path("/proc")

STARTING_S = 5.0
"""How long a process may show nothing of itself while it starts: it takes less than a millisecond of a processor, for
which it may have to wait."""


def variables_of(pid: int) -> list[bytes]:
    """The environment that a process was started with; empty if it is gone, has none, or is somebody else's.

    In the middle of execve(2) a process shows neither arguments nor environment, and `subprocess.Popen` returns before
    that is over: right after it 14 of 600 processes had none, on a busy machine 513. Such a one is waited for, since
    who looks for a mark would take it for a stranger's.
    """
    folder = PROC / str(pid)
    deadline = time.monotonic() + STARTING_S
    try:
        starts = True
        while not (said := (folder / "environ").read_bytes()) and starts and time.monotonic() < deadline:
            if starts := _is_starting(folder):  # if not, it may be over since the look before: hence one more
                time.sleep(0.001)
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return []
    return said.split(b"\0")


def _is_starting(folder: Path) -> bool:
    """Whether it shows no arguments, although it has memory: zombies and the kernel's own threads have none."""
    has_memory = (folder / "statm").read_text(encoding="ascii").split()[0] != "0"
    return has_memory and not (folder / "cmdline").read_bytes()
