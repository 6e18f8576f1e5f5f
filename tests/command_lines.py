"""What a process was started with, and programs and the `sweep` command as processes."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from configs.checkout import ROOT


def command_of(pid: int) -> str:
    """Its command line; empty if it is gone."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
    except (FileNotFoundError, ProcessLookupError):
        return ""


def start(argv: Sequence[str | Path], env: Mapping[str, str], cwd: Path = ROOT) -> subprocess.Popen[str]:
    """A program with no other variables; what it says on both channels is in one pipe."""
    nothing, pipe, same = subprocess.DEVNULL, subprocess.PIPE, subprocess.STDOUT
    return subprocess.Popen(argv, cwd=cwd, env=env, text=True, stdin=nothing, stdout=pipe, stderr=same)


def start_command(*arguments: str | Path, env: Mapping[str, str], cwd: Path = ROOT) -> subprocess.Popen[str]:
    """`sweep ARGUMENTS`, with these variables besides ours."""
    env = os.environ | {"PYTHONPATH": str(ROOT)} | env
    return start([sys.executable, "-m", "flows.terminal", *arguments], env, cwd)


def run_python(*arguments: str | Path, env: Mapping[str, str], cwd: Path = ROOT) -> subprocess.CompletedProcess[str]:
    """Our interpreter, to its end, with no other variables."""
    return subprocess.run([sys.executable, *arguments], cwd=cwd, env=env, text=True, capture_output=True, timeout=900)
