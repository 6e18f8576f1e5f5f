"""Who belongs to a group, by what the kernel tells of each process."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest

from tasks.host import process_group
from tasks.host.process_group import variables_of


@pytest.fixture
def busy() -> Iterator[None]:
    """Every processor has more to do than it can, so that what starts has to wait for one."""
    hogs = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(2 * (os.cpu_count() or 1))]
    yield
    for each in hogs:
        each.kill()
        each.wait()


def test_a_process_shows_what_it_was_started_with_as_soon_as_it_was_started(busy: None) -> None:
    group = process_group.new_group(process_group.SESSION_VARIABLE)
    mark = f"{group.variable}={group.mark}".encode()
    missed = 0
    for _ in range(60):
        with subprocess.Popen(["sleep", "1000"], env=os.environ | group.env) as process:
            missed += mark not in variables_of(process.pid)
            process.kill()
        assert variables_of(process.pid) == [], "it is gone"
    assert missed == 0


def test_who_carries_another_variable_too_can_be_left_out() -> None:
    group = process_group.new_group(process_group.SESSION_VARIABLE)
    engine = process_group.new_group(process_group.ENGINE_VARIABLE)
    own = [subprocess.Popen(["sleep", "1000"], env=os.environ | group.env | more) for more in ({}, engine.env)]
    assert sorted(process_group.members(group)) == sorted(process.pid for process in own)
    assert process_group.members(group, without=process_group.ENGINE_VARIABLE) == [own[0].pid]
    process_group.stop(group, terminate=[own[0].pid], grace_s=0.0)
    assert [process.wait(60) for process in own] == [-signal.SIGTERM, -signal.SIGKILL]
