"""What a killed API server leaves: executors of 250 MB each, and the port of its queue, still taken."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import psutil

SERVER = "sky.server.server"
"""Module that an API server runs; its own children have other command lines."""

GRACE_S = 10.0
"""How long killed processes may take to be gone."""


def end_leftovers(home: Path) -> list[int]:
    """Kill what writes into the logs of `home`'s API server, unless that server lives; returns the pids.

    The caller keeps others from starting a server meanwhile: one that is being started does not count as one yet.
    """
    folders = (home / ".sky" / "api_server", home / "sky_logs" / "api_server")
    writers = [process for process in _own_processes() if _writes(process, folders)]
    if any(SERVER in " ".join(_command(process)) for process in writers):
        return []
    for process in writers:
        try:
            process.kill()
        except psutil.NoSuchProcess:
            continue  # gone with its siblings
    psutil.wait_procs(writers, timeout=GRACE_S)
    return [process.pid for process in writers]


def _own_processes() -> Iterator[psutil.Process]:
    """This user's processes, except this one and its ancestors."""
    lineage = {os.getpid(), *(parent.pid for parent in psutil.Process().parents())}
    for process in psutil.process_iter():
        try:
            if process.pid not in lineage and process.uids().real == os.getuid():
                yield process
        except psutil.NoSuchProcess:
            continue


def _writes(process: psutil.Process, folders: tuple[Path, ...]) -> bool:
    """Whether it has a file below one of the folders open for writing; a mere reader of logs is none of ours."""
    try:
        files = process.open_files()
    except (psutil.NoSuchProcess, psutil.AccessDenied):
        return False
    written = [Path(file.path) for file in files if getattr(file, "mode", "a") != "r"]  # only Linux tells the mode
    return any(path.is_relative_to(folder) for path in written for folder in folders)


def _command(process: psutil.Process) -> list[str]:
    try:
        return list(process.cmdline())
    except psutil.NoSuchProcess:
        return []
