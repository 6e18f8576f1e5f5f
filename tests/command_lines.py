"""Command lines of processes that may end while they are looked at."""

from __future__ import annotations

from pathlib import Path


def command_of(pid: int) -> str:
    """Its command line; empty if it is gone."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
    except (FileNotFoundError, ProcessLookupError):
        return ""
