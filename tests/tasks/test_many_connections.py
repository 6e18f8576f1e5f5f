"""Requests in flight are bounded by what the system allows, and not by what shells begin with."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

RUNNER = """
import resource, sys
from tasks.cell import main

_, most = resource.getrlimit(resource.RLIMIT_NOFILE)
resource.setrlimit(resource.RLIMIT_NOFILE, (64, most))
main()  # there is no such run: it ends before it serves anything
kept = [open("/dev/null") for _ in range(200)]
print("opened", len(kept))
"""


def test_a_runner_may_open_more_files_than_a_shell_begins_with(tmp_path: Path) -> None:
    argv = [sys.executable, "-c", RUNNER, "--store", str(tmp_path), "--run", "none", "--cell", "0" * 16]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=120, check=False)
    assert done.stdout.endswith("opened 200\n"), done.stderr
