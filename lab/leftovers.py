"""Finds and removes what a lab leaves: processes, semaphores, folders (standard library only)."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterable
from pathlib import Path

from lab.paths import MARK, LabPaths

PROC = Path("/proc")
SHARED_MEMORY = Path("/dev/shm")
GRACE_S = 30.0  # how long killed processes may take to go; on a busy machine it was seen to take seconds


def processes(root: Path) -> list[int]:
    """Living processes of a lab, except this one and its ancestors.

    They have the lab's mark, have its SkyPilot home for HOME, write their output into that home, or live in a body.
    SkyPilot's executors overwrite their environment, and a body's tasks may drop variables.
    """
    home = LabPaths(root).home
    needles = {f"{MARK}={root}".encode(), f"HOME={home}".encode()}
    marked = [pid for pid in _pids() if needles & set(_environment(pid)) or _writes_below(pid, home)]
    bodies = {_namespace(pid) for pid in marked} - {_namespace(os.getpid()), None}
    inside = [pid for pid in _pids() if _namespace(pid) in bodies] if bodies else []
    return sorted({*marked, *inside} - _lineage())


def body_processes(root: Path) -> list[int]:
    """Living processes of a lab that run inside a body."""
    own = _namespace(os.getpid())
    return [pid for pid in processes(root) if _namespace(pid) not in (own, None)]


def kill(root: Path) -> None:
    """Kill a lab's processes, and unlink their semaphores. Raises TimeoutError: some were alive after `GRACE_S`."""
    deadline = time.monotonic() + GRACE_S
    mapped: set[int] = set()
    while left := processes(root):
        if time.monotonic() > deadline:
            raise TimeoutError(f"processes of the lab at {root} do not die: {left}")
        mapped |= semaphores(left)
        send(left, signal.SIGKILL)
        time.sleep(0.05)
    for path in SHARED_MEMORY.glob("sem.*"):
        if path.stat().st_ino in mapped:
            path.unlink(missing_ok=True)


def kill_body(process: subprocess.Popen[bytes]) -> None:
    """Kill a body, and return when nothing in its namespaces runs any more, or writes files that are to be removed.

    `process` is its `unshare`, which ends after the namespaces' first process, and that one after all others. Killed
    itself, `unshare` would go before them.
    """
    if process.poll() is not None:
        return
    first: list[str] = []
    with contextlib.suppress(FileNotFoundError):  # a kernel without CONFIG_PROC_CHILDREN: then `unshare` goes first
        first = (PROC / str(process.pid) / "task" / str(process.pid) / "children").read_text(encoding="ascii").split()
    if first:
        send(map(int, first), signal.SIGKILL)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(GRACE_S)
    process.kill()
    process.wait()


def send(pids: Iterable[int], number: signal.Signals) -> None:
    """Send a signal to processes, some of which may be gone."""
    for pid in pids:
        try:
            os.kill(pid, number)
        except ProcessLookupError:
            continue


def remove_tree(folder: Path) -> None:
    """Remove a folder, even the parts without permissions: an overlay's work folder has mode 000."""
    if not folder.exists():
        return
    for here, folders, _ in os.walk(folder):
        for name in folders:
            path = Path(here, name)
            if not path.is_symlink():
                path.chmod(0o700)
    shutil.rmtree(folder)


def _pids() -> list[int]:
    return [int(folder.name) for folder in PROC.iterdir() if folder.name.isdigit()]


def _environment(pid: int) -> list[bytes]:
    """Variables that a process started with; empty if it is gone, a zombie, or somebody else's."""
    try:
        return (PROC / str(pid) / "environ").read_bytes().split(b"\0")
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return []


def _writes_below(pid: int, folder: Path) -> bool:
    """Whether its standard output or error is a file below `folder`, which may have been removed since."""
    for number in ("1", "2"):
        try:
            target = (PROC / str(pid) / "fd" / number).readlink()
        except (FileNotFoundError, ProcessLookupError, PermissionError):
            continue
        if folder in target.parents:
            return True
    return False


def _namespace(pid: int) -> str | None:
    try:
        return str((PROC / str(pid) / "ns" / "pid").readlink())
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return None


def _lineage() -> set[int]:
    found, pid = set(), os.getpid()
    while pid > 0:
        found.add(pid)
        status = (PROC / str(pid) / "status").read_text(encoding="utf-8", errors="replace")
        pid = int(status.partition("\nPPid:")[2].split()[0])
    return found


def semaphores(pids: Iterable[int]) -> set[int]:
    """Inodes of mapped semaphores (sem_overview(7)): a maker's map has not their name, but a temporary one."""
    inodes: set[int] = set()
    for pid in pids:
        try:
            maps = (PROC / str(pid) / "maps").read_text(encoding="utf-8", errors="replace")
        except (FileNotFoundError, ProcessLookupError, PermissionError):
            continue
        inodes |= {int(line.split()[4]) for line in maps.splitlines() if f" {SHARED_MEMORY}/sem." in line}
    return inodes
