"""Where this machine's locks and work folders are, for all processes of one command."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from configs.checkout import ROOT
from tasks.engine.machine import state_dir

ASK = "from tasks.engine.machine import state_dir; print(state_dir())"


def test_a_relative_state_folder_is_one_folder_for_processes_that_work_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SPECSWEEP_STATE", "mine/state")
    monkeypatch.chdir(tmp_path)
    assert state_dir() == tmp_path / "mine" / "state"
    asked = subprocess.run([sys.executable, "-c", ASK], cwd=ROOT, capture_output=True, text=True, check=True)
    assert asked.stdout == f"{tmp_path / 'mine' / 'state'}\n"


def test_an_empty_state_variable_is_the_users_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPECSWEEP_STATE", "")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert state_dir() == tmp_path / "specsweep" / "state"
