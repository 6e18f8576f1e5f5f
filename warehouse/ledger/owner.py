"""Which process owns something: a name that tells it from every other, and whether it still runs.

Known to be dead is only what this process would see if it lived. All else is alive until it is silent for too long.
"""

from __future__ import annotations

import os
import re
import socket
from collections.abc import Collection
from hashlib import sha256
from pathlib import Path

NAMED = re.compile(r"(?P<where>[^/]*/[^/]*/[^/]+/[^/]+)/(?P<pid>\d+)/(?P<tick>\d+)")
"""HOST/MACHINE/BOOT/NAMESPACE/PID/TICK."""


def owner_name() -> str:
    """This process as leases and flows name it: where it runs, its id, and the tick at which it started."""
    return f"{_where()}/{os.getpid()}/{_start_tick(os.getpid())}"


def in_words(owner: str) -> str:
    """`process 4711 on host`; a name of another kind as it is."""
    named = NAMED.fullmatch(owner)
    return owner if named is None else f"process {named['pid']} on {named['where'].partition('/')[0]}"


def is_one_of(owner: str, pids: Collection[int]) -> bool:
    """Whether the owner is one of these living processes of this machine."""
    named = NAMED.fullmatch(owner)
    return named is not None and int(named["pid"]) in pids and lives_here(owner) is True


def lives_here(owner: str) -> bool | None:
    """Whether the owning process still runs; None: that can't be told from here, as of another machine or namespace.

    A machine of this name, with another boot, may be its copy or another container of its image.
    """
    named = NAMED.fullmatch(owner)
    if named is None or named["where"] != _where():
        return None
    pid = int(named["pid"])
    tick = _start_tick(pid)
    return None if tick is None and _is_hidden(pid) else tick == named["tick"]


def _where() -> str:
    """Host, machine, boot and pid namespace; empty where one that tells processes apart can't be read."""
    # systemd asks that a machine's id be kept secret
    machine = sha256(_read("/etc/machine-id").encode()).hexdigest()[:8]
    boot = _read("/proc/sys/kernel/random/boot_id").replace("-", "")
    return f"{socket.gethostname()}/{machine}/{boot}/{_pid_namespace()}"


def _pid_namespace() -> str:
    try:
        return re.sub(r"\D", "", str(Path("/proc/self/ns/pid").readlink()))
    except OSError:
        return ""


def _read(path: str) -> str:
    try:
        return Path(path).read_text(encoding="ascii").strip()
    except OSError:
        return ""


def _start_tick(pid: int) -> str | None:
    """When the process started, which tells it from a later one with the same id; None: gone, hidden, or a zombie."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return None
    return None if fields[0] == "Z" else fields[19]


def _is_hidden(pid: int) -> bool:
    """Whether there is such a process though /proc doesn't tell of it, as with `hidepid`."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return not Path(f"/proc/{pid}").exists()
