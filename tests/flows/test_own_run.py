"""Of the nights of a sweep one runs: a claim in the store says which. A flow whose worker is gone goes on."""

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path

import pytest

from configs.checkout import ROOT
from flows.own_run import AnotherNight, only_night
from tests.busy_machine import PATIENCE_S
from tests.tasks.test_cell import wait_until
from warehouse.ledger.owner import in_words, owner_name
from warehouse.ledger.runs import run_ids
from warehouse.ledger.store import Store, open_store


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return open_store(str(tmp_path))


def begin_and_end(store: Store, sweep: str) -> None:
    with only_night(store, sweep, print, again=False):
        pass


def test_a_night_is_refused_while_an_earlier_one_of_its_sweep_lives_and_says_whose_that_is(store: Store) -> None:
    with only_night(store, "nightly", print, again=False):
        with pytest.raises(AnotherNight) as refused:
            begin_and_end(store, "nightly")
        begin_and_end(store, "another-sweep")
    assert in_words(owner_name()) in str(refused.value) and "\n" not in str(refused.value)
    begin_and_end(store, "nightly")
    assert run_ids(store) == [], "no reader takes it for a run"


def test_a_night_that_fails_leaves_the_next_one_free(store: Store) -> None:
    with pytest.raises(RuntimeError, match="budget"), only_night(store, "nightly", print, again=False):
        raise RuntimeError("over budget")
    begin_and_end(store, "nightly")


def test_one_that_crashed_and_is_started_again_waits(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("flows.own_run.ASK_PREFECT_S", 0.01)
    over, told = threading.Event(), list[str]()

    def continued() -> None:
        with only_night(store, "nightly", told.append, again=True):
            over.set()

    thread = threading.Thread(target=continued, daemon=True)
    with only_night(store, "nightly", print, again=False):
        thread.start()
        wait_until(lambda: told, "it says that it waits")
        assert not over.is_set()
    assert over.wait(PATIENCE_S)
    thread.join(PATIENCE_S)


PRINTS = """
import os, sys, time
from pathlib import Path
from rich.console import Console
from flows.own_run import outlive_reader

outlive_reader()
print("ready", flush=True)
sys.stdin.readline()
Console(file=sys.stderr).print("what Prefect logs at that moment")
while {os.readlink(f"/proc/self/fd/{stream}") for stream in (1, 2)} != {os.devnull}:
    time.sleep(0.01)
print("what SkyPilot prints", flush=True)
Path(sys.argv[1]).touch()
"""


@pytest.mark.slow(5)
def test_who_prints_to_a_worker_that_is_killed_goes_on(tmp_path: Path) -> None:
    argv, pipe = [sys.executable, "-c", PRINTS, str(tmp_path / "lived")], subprocess.PIPE
    with subprocess.Popen(argv, cwd=ROOT, stdin=pipe, stdout=pipe, stderr=pipe) as flow:
        assert flow.stdin is not None and flow.stdout is not None and flow.stderr is not None
        assert flow.stdout.readline() == b"ready\n"
        flow.stdout.close()
        flow.stderr.close()
        flow.stdin.write(b"gone\n")
        flow.stdin.flush()
        assert flow.wait(PATIENCE_S) == 0 and (tmp_path / "lived").exists()
