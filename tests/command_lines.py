"""What a process was started with, and the `sweep` command as a process."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from configs.checkout import ROOT


def command_of(pid: int) -> str:
    """Its command line; empty if it is gone."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
    except (FileNotFoundError, ProcessLookupError):
        return ""


def start_command(*arguments: str, env: Mapping[str, str], cwd: Path = ROOT) -> subprocess.Popen[str]:
    """`sweep ARGUMENTS`, with these variables besides ours; what it says on both channels is in one pipe."""
    return subprocess.Popen(
        [sys.executable, "-m", "flows.terminal", *arguments],
        cwd=cwd,
        env=os.environ | {"PYTHONPATH": str(ROOT)} | env,
        text=True,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
