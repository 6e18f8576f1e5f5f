"""The real vLLM on the CPU, the real tiny family, a real Prefect: killed at every level, and it comes out right."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

import polars as pl
import pytest

from configs.expand import default_run_id
from flows.plans import make_plan
from tasks.engine.machine import cell_workdir
from tasks.host import process_group
from tests.command_lines import command_of, start_command
from tests.tasks.test_cell import processes_with, wait_until
from warehouse.ledger.commits import Ledger
from warehouse.ledger.lease import Leases
from warehouse.ledger.store import open_store

pytestmark = [pytest.mark.engine, pytest.mark.slow(200), pytest.mark.core]


class Victim:
    """One `sweep demo` of the tiny-quick sweep, and what of it can be killed."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.env = {
            "SPECSWEEP_STORE": str(folder / "store"),
            "SPECSWEEP_STATE": str(folder / "state"),
            "COLUMNS": "160",
        }
        self.plan = make_plan("tiny-quick")
        self.ledger = Ledger(open_store(str(folder / "store")), default_run_id(self.plan))
        self.keys = [planned.cell.cell_key for planned in self.plan.cells]

    def start(self) -> subprocess.Popen[str]:
        return start_command("demo", "--sweep", "tiny-quick", env=self.env)

    def in_step(self, key: str, step: str) -> Callable[[], bool]:
        def inside() -> bool:
            beat = Leases(self.ledger, key).heartbeat()
            return beat is not None and beat.step == step and self.ledger.read_commit(key, step) is None

        return inside

    def processes(self, word: str) -> list[int]:
        mine = processes_with(str(self.folder / "state"))
        return [pid for pid in mine if word in command_of(pid)]

    def kill(self, word: str) -> None:
        pids = self.processes(word)
        assert pids, f"no process of the demo has {word!r} in its command line"
        for pid in pids:
            os.kill(pid, signal.SIGKILL)


@pytest.fixture(scope="module")
def survived(tmp_path_factory: pytest.TempPathFactory) -> Victim:
    """A demo whose node runner, engine and worker were each killed -9 inside a step, and which was then run again."""
    victim = Victim(tmp_path_factory.mktemp("victim"))
    ar, mtp = victim.keys
    first = victim.start()
    wait_until(victim.in_step(ar, "parity"), "the AR cell in its parity step", 900)
    victim.kill("tasks.cell")
    wait_until(victim.in_step(mtp, "smoke"), "the MTP cell in a step", 900)
    victim.kill("EngineCore")
    wait_until(victim.in_step(mtp, "parity"), "the MTP cell in its parity step again", 900)
    victim.kill("worker start")
    said, _ = first.communicate(timeout=1800)
    assert first.returncode == 1, said
    assert "the Prefect worker ended" in said
    assert processes_with(str(victim.folder / "state")) == [], "nothing is left behind"
    second = victim.start()
    said, _ = second.communicate(timeout=1800)
    assert second.returncode == 0, said
    assert any(line.endswith("report.html") for line in said.splitlines())
    return victim


def test_every_step_is_committed_once_and_nothing_is_left(survived: Victim) -> None:
    for planned in survived.plan.cells:
        for spec in planned.steps:
            assert survived.ledger.read_commit(planned.cell.cell_key, spec.step) is not None
    assert processes_with(str(survived.folder / "state")) == []
    for key in survived.keys:
        record = cell_workdir(survived.ledger.run_id, key) / "engine.group.json"
        assert not process_group.end_recorded(record)


def test_the_attempts_tell_the_story(survived: Victim) -> None:
    stories = [[attempt.outcome for attempt in Leases(survived.ledger, key).attempts()] for key in survived.keys]
    assert stories[0] == ["lost", "completed"]
    assert stories[1][0] == "failed" and stories[1][-1] == "completed"


def test_the_numbers_are_those_of_models_that_learnt_something(survived: Victim) -> None:
    frame = pl.read_parquet(survived.folder / "store" / "results_consolidated.parquet")
    scores = frame.filter((pl.col("metric") == "accuracy") & (pl.col("extractor") == "last-letter"))
    assert scores.height == 2
    assert scores["score"].min() >= 0.75  # type: ignore[operator]
    first = frame.filter(pl.col("extractor") == "first-letter")["score"]
    assert first.max() < 0.6  # type: ignore[operator]
    mtp = frame.filter((pl.col("technique") == "mtp") & (pl.col("mode") == "fixed"))
    assert 1.2 < mtp["acceptance_length"][0] <= 5
    rates = frame.filter((pl.col("step") == "throughput") & (pl.col("mode") == "fixed"))
    assert (mtp["speedup"][0] is not None) == (rates["verdict"] == "ok").all(), "of ok rows only"
    parity = frame.filter((pl.col("step") == "parity") & (pl.col("technique") == "mtp"))
    assert parity["parity_equal"][0] == parity["parity_n"][0] == 3


def test_every_row_carries_its_provenance(survived: Victim) -> None:
    frame = pl.read_parquet(survived.folder / "store" / "results_consolidated.parquet")
    for column in ("git_sha", "argv", "engine_version", "model_revision", "gpu_name", "host", "weights", "config_hash"):
        assert frame[column].null_count() == 0, column
