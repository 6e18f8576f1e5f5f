"""Which process owns something: a name that tells it from every other, and whether it still runs."""

from __future__ import annotations

import os
import socket
from pathlib import Path


def owner_name() -> str:
    """This process as leases name it: host, boot, process id and the tick at which it started."""
    return f"{socket.gethostname()}/{_boot_id()}/{os.getpid()}/{_start_tick(os.getpid())}"


def lives_here(owner: str) -> bool | None:
    """Whether the owning process still runs, if it is one of this machine; None: it is another machine's."""
    host, boot, pid, tick = owner.rsplit("/", 3)
    if host != socket.gethostname():
        return None
    return boot == _boot_id() and _start_tick(int(pid)) == tick


def _boot_id() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii")[:8]


def _start_tick(pid: int) -> str | None:
    """When the process started, which tells it from a later one with the same id; None: gone, or a zombie."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return None
    return None if fields[0] == "Z" else fields[19]
