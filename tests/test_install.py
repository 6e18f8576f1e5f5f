"""The repository is used from a clone: whoever tries to install it is told so, and no wheel claims `configs`."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.parametrize("editable", [False, True], ids=["installed", "editable"])
def test_pip_is_told_to_clone(editable: bool, repo_root: Path, tmp_path: Path) -> None:
    target = ["--editable", str(repo_root)] if editable else [str(repo_root)]
    argv = [sys.executable, "-m", "pip", "install", "--no-index", "--no-deps", "--target", str(tmp_path), *target]
    done = subprocess.run(argv, cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode != 0
    assert "specsweep runs from its clone and is not installed" in done.stdout + done.stderr
    assert "Traceback" not in done.stdout + done.stderr
    assert list(tmp_path.iterdir()) == []


def test_no_wheel_is_built(repo_root: Path, tmp_path: Path) -> None:
    options = ["--no-index", "--no-deps", "--wheel-dir", str(tmp_path)]
    argv = [sys.executable, "-m", "pip", "wheel", *options, str(repo_root)]
    done = subprocess.run(argv, cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode != 0
    assert "make demo" in done.stderr
    assert not list(tmp_path.glob("*.whl"))
