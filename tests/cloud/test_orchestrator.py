"""Whoever runs the night dies, and nobody starts it again: the reaper removes what is up.

That the next start adopts it is in test_bad_night; that several are removed at once, in test_reaper.
"""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from lab.cloud import Lab
from tests.cloud.night import Night, orchestrators
from tests.rented_run import PATIENCE_S

pytestmark = [pytest.mark.cloud, pytest.mark.slow(330)]

LAST_COMMIT = "steps/eval-tiny/commit.json"  # held back, no cell gets measured: its node works until the test lets it


@pytest.fixture
def made(lab: Lab, tmp_path: Path) -> Iterator[Callable[[int], Night]]:
    """Makes a night of as many cells."""
    yield lambda cells: Night(lab, tmp_path, cells)
    for pid in orchestrators(tmp_path):
        os.kill(pid, signal.SIGKILL)


def _held(night: Night) -> subprocess.Popen[bytes]:
    """The night's process, once all nodes have all rows of their last step in the store, and wait for its commit."""
    process, cells = night.start(), range(len(night.keys))
    held = lambda: all(any("verdicts-" in key for key in night.parts(cell, "eval-tiny")) for cell in cells)  # noqa: E731
    night.wait(process, held, "all nodes wait for their last commit")
    return process


def test_if_nobody_starts_it_again_the_reaper_removes_what_is_up(made: Callable[[int], Night]) -> None:
    night = made(1)
    with night.lab.writes_held(LAST_COMMIT):
        process = _held(night)
        for pid in orchestrators(night.folder):
            os.kill(pid, signal.SIGKILL)
        process.wait()
        assert len(night.living(0)) == 1
        night.sweep("reap", "--dry-run")
        assert len(night.living(0)) == 1, "a live lease owns it"
    night.wait(None, lambda: night.is_measured(0) and bool(night.attempts(0)), "the node ends")
    assert night.cluster(0) in night.sweep("reap", "--dry-run")
    assert len(night.living(0)) == 1, "a dry run does nothing"
    assert "USD" in night.sweep("reap")
    assert [each for each in night.lab.instances() if each.alive] == []
    assert night.ends(0) == ["stopped"]


def test_ctrl_c_takes_all_clusters_down_and_keeps_what_is_measured(made: Callable[[int], Night]) -> None:
    night = made(2)
    with night.lab.writes_held(LAST_COMMIT):
        process = _held(night)
        process.send_signal(signal.SIGINT)
        process.wait(PATIENCE_S)
    assert process.returncode == 130, night.said()
    assert [each for each in night.lab.instances() if each.alive] == []
    for cell in (0, 1):
        assert night.ends(cell) == ["stopped"]
        assert night.ledger.read_commit(night.keys[cell], "parity") is not None
    assert orchestrators(night.folder) == []
