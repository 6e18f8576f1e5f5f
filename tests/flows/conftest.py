"""The `sweep` command as a user runs it, on a sweep that the fake engine serves."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from configs.checkout import ROOT
from tests.warehouse.store.conftest import s3_server

__all__ = ["s3_server"]

Sweep = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def start_sweep(tmp_path: Path) -> Sweep:
    """Starts `sweep ARGUMENTS` with state and store of its own, in a folder; `FAKE_ENGINE...` may be keywords."""

    def start(*arguments: str, cwd: Path = ROOT, **env: str) -> subprocess.Popen[str]:
        own = {
            "PYTHONPATH": str(ROOT),
            "SPECSWEEP_STORE": str(tmp_path / "store"),
            "SPECSWEEP_STATE": str(tmp_path / "state"),
            "FAKE_ENGINE_COUNT": str(tmp_path / "requests.jsonl"),
            "COLUMNS": "160",
        }
        full = os.environ | own | env
        return subprocess.Popen(
            [sys.executable, "-m", "flows.terminal", *arguments],
            cwd=cwd,
            env=full,
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
        )

    return start


@pytest.fixture
def finish_sweep(start_sweep: Sweep) -> Callable[..., tuple[int, str]]:
    """Runs `sweep ARGUMENTS` to its end: exit code and what it printed."""

    def finish(*arguments: str, timeout_s: float = 240, cwd: Path = ROOT, **env: str) -> tuple[int, str]:
        process = start_sweep(*arguments, cwd=cwd, **env)
        said, _ = process.communicate(timeout=timeout_s)
        return process.returncode, said

    return finish
