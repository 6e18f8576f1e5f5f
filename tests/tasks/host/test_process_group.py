"""Processes of a group, by what the kernel tells of each: who belongs to it, and its most memory."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest

from tasks.host import process_group
from tasks.host.process_group import peak_bytes, variables_of


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


def test_a_peak_stays_when_the_memory_was_given_back_and_peaks_add_up() -> None:
    grown = "kept = bytearray(96 * 2**20); del kept; print('grown', flush=True); input()"
    argv = [sys.executable, "-c", grown]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None and process.stdout.readline() == b"grown\n"
        alone, own = peak_bytes([process.pid]), peak_bytes([os.getpid()])
        both = peak_bytes([process.pid, os.getpid()])
        assert alone is not None and own is not None and alone > 96 * 2**20
        assert both is not None and both >= alone + own
        process.communicate(b"\n")
    assert peak_bytes([process.pid]) is None, "it is gone"
    assert peak_bytes([]) is None
