"""The repository is used from a clone: whoever tries to install it is told so, and no wheel claims `configs`."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.command_lines import run_python


@pytest.mark.parametrize("editable", [False, True], ids=["installed", "editable"])
def test_pip_is_told_to_clone(editable: bool, repo_root: Path, tmp_path: Path) -> None:
    target = ["--editable", str(repo_root)] if editable else [str(repo_root)]
    argv = ["-m", "pip", "install", "--no-index", "--no-deps", "--target", str(tmp_path), *target]
    done = run_python(*argv, env=os.environ, cwd=tmp_path)
    assert done.returncode != 0
    assert "specsweep runs from its clone and is not installed" in done.stdout + done.stderr
    assert "Traceback" not in done.stdout + done.stderr
    assert list(tmp_path.iterdir()) == []


def test_no_wheel_is_built(repo_root: Path, tmp_path: Path) -> None:
    options = ("--no-index", "--no-deps", "--wheel-dir", tmp_path)
    done = run_python("-m", "pip", "wheel", *options, repo_root, env=os.environ, cwd=tmp_path)
    assert done.returncode != 0 and "make demo" in done.stderr
    assert not list(tmp_path.glob("*.whl"))
