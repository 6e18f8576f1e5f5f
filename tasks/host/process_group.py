"""Ends everything that a process of ours started, even if its parent was killed long ago.

A killed API server leaves its workers alive (2 GB of them). So each process of a group has a mark in its environment,
which its children inherit. The mark is written to disk before anything can go wrong.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import tempfile
import time
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

PROC = Path("/proc")

STARTING_S = 5.0
"""How long a process may show nothing of itself while it starts. Starting takes less than a millisecond of a processor,
but it may have to wait for that."""


def variables_of(pid: int) -> list[bytes]:
    """The environment that a process was started with; empty if it is gone, has none, or is somebody else's.

    In the middle of execve(2) a process shows neither arguments nor environment, and `subprocess.Popen` returns before
    that is over. Right after it 14 of 600 processes had none, on a busy machine 513. Such a one is waited for, or it
    would be taken for a stranger's.
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


GRACE_S = 30.0  # how long a group may take to leave after SIGTERM before it is killed
LONGEST_SCRATCH_BASE = 40  # characters of a temporary folder's path with which engines' sockets have short enough ones
ENGINE_VARIABLE = "SPECSWEEP_ENGINE"  # environment variable that holds the mark of an engine's processes
FRAMEWORK_VARIABLE = "SPECSWEEP_FRAMEWORK"  # that of an evaluation framework's
SESSION_VARIABLE = "SPECSWEEP_SESSION"  # that of a server, worker and flow that one command started
RECORD_SUFFIX = ".group.json"  # how the name of a file ends that says which processes belong to a group


class ProcessGroup(NamedTuple):
    """Processes whose environment holds `variable=mark`."""

    variable: str
    mark: str

    @property
    def scratch(self) -> Path:
        """A temporary folder of the group's own. Its path is short: a socket's may have 107 characters in all."""
        base = Path(tempfile.gettempdir())
        return (base if len(str(base)) <= LONGEST_SCRATCH_BASE else Path("/tmp")) / f"specsweep-{self.mark[:12]}"

    @property
    def env(self) -> dict[str, str]:
        """What to add to the environment of the group's first process."""
        return {self.variable: self.mark}


def new_group(variable: str) -> ProcessGroup:
    """A group with a mark of its own, and no process yet."""
    return ProcessGroup(variable, uuid.uuid4().hex)


def record(group: ProcessGroup, path: Path) -> None:
    """Write the group down, so that a later process can end it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_suffix(".tmp")
    temporary.write_text(json.dumps(group._asdict()), encoding="ascii")
    temporary.rename(path)


def recorded(path: Path) -> ProcessGroup | None:
    """The group that was written down there; None: there is none any more."""
    try:
        return ProcessGroup(**json.loads(path.read_text(encoding="ascii")))
    except FileNotFoundError:
        return None


def end_recorded(path: Path) -> bool:
    """Kill what is left of a recorded group, and forget it. True if something was still alive."""
    group = recorded(path)
    if group is None:
        return False
    left = members(group)
    stop(group, terminate=())
    shutil.rmtree(group.scratch, ignore_errors=True)
    path.unlink(missing_ok=True)
    return bool(left)


def end_all_recorded(folder: Path) -> int:
    """Kill what is left of every group that is recorded anywhere below a folder; how many were still alive."""
    return sum(end_recorded(path) for path in sorted(folder.rglob(f"*{RECORD_SUFFIX}")))


def stop(group: ProcessGroup, terminate: Sequence[int], grace_s: float = GRACE_S) -> None:
    """End every process of the group; those to `terminate` are asked first, with SIGTERM, and may end the others."""
    if terminate:
        _signal(terminate, signal.SIGTERM)
        deadline = time.monotonic() + grace_s
        while members(group) and time.monotonic() < deadline:
            time.sleep(0.05)
    # a process may be forked between the look and the kill: look again until there is none
    deadline = time.monotonic() + GRACE_S
    while (left := members(group)) and time.monotonic() < deadline:
        _signal(left, signal.SIGKILL)
        time.sleep(0.05)


def ask_to_leave(pids: Sequence[int]) -> None:
    """SIGTERM to each process, then wait until all are gone or `GRACE_S` is over; kills nothing."""
    _signal(pids, signal.SIGTERM)
    deadline = time.monotonic() + GRACE_S
    while time.monotonic() < deadline and any(_is_alive(Path(f"/proc/{pid}")) for pid in pids):
        time.sleep(0.05)


def members(group: ProcessGroup, without: str | None = None) -> list[int]:
    """Living processes of the group that don't have the variable `without`."""
    needle = f"{group.variable}={group.mark}".encode()
    found = []
    for folder in PROC.iterdir():
        if not folder.name.isdigit():
            continue
        entries = variables_of(int(folder.name))
        if needle in entries and _is_alive(folder):
            if without is None or not any(entry.startswith(without.encode() + b"=") for entry in entries):
                found.append(int(folder.name))
    return found


def peak_bytes(pids: Sequence[int]) -> int | None:
    """Sum of the largest resident set that each of these processes ever had; None: none of them lives.

    Source: Documentation/filesystems/proc.rst of Linux, /proc/<pid>/status, VmHWM, in kB. Pages that processes share
    count in each, and their peaks need not have been at the same time. So this is the most that it can have been.
    """
    found = []
    for pid in pids:
        try:
            status = Path(f"/proc/{pid}/status").read_text(encoding="utf-8", errors="replace")
        except (FileNotFoundError, ProcessLookupError):
            continue  # ended since it was listed
        found += [1024 * int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM:")]
    return sum(found) if found else None


def _is_alive(folder: Path) -> bool:
    try:
        stat = (folder / "stat").read_text(encoding="utf-8", errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return False
    return stat.rpartition(")")[2].split()[0] != "Z"


def _signal(pids: Sequence[int], number: signal.Signals) -> None:
    for pid in pids:
        try:
            os.kill(pid, number)
        except ProcessLookupError:
            continue
