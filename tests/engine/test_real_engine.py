"""The real vLLM on the CPU, the real tiny family, a real Prefect: killed at every level, and it comes out right."""

from __future__ import annotations

import polars as pl
import pytest

from tasks.engine.machine import cell_workdir
from tasks.host import process_group
from tests.busy_machine import PATIENCE_S
from tests.command_lines import start_command
from tests.engine.tiny_runs import TinyRun, results
from tests.tasks.test_cell import wait_until

pytestmark = [pytest.mark.engine, pytest.mark.slow(300), pytest.mark.core]


@pytest.fixture(scope="module")
def survived(tmp_path_factory: pytest.TempPathFactory) -> TinyRun:
    """A demo whose engine, node runner and worker were killed -9 inside a step, and which was then run again."""
    victim = TinyRun("tiny-quick", tmp_path_factory.mktemp("victim"))
    env = {"SPECSWEEP_STORE": str(victim.store), "SPECSWEEP_STATE": str(victim.state), "COLUMNS": "160"}
    first = start_command("demo", "--sweep", "tiny-quick", env=env)
    victim.wait_in("ar", "parity")
    victim.kill("EngineCore")
    victim.wait_in("mtp", "parity")
    victim.kill("tasks.cell")
    wait_until(lambda: bool(victim.attempts("mtp")), "the killed runner's attempt closed by the flow")
    victim.kill("worker start")
    said, _ = first.communicate(timeout=PATIENCE_S)
    assert first.returncode == 1, said
    assert "the Prefect worker ended" in said
    assert victim.processes() == [], "nothing is left behind"
    second = start_command("demo", "--sweep", "tiny-quick", env=env)
    said, _ = second.communicate(timeout=PATIENCE_S)
    assert second.returncode == 0, said
    assert any(line.endswith("report.html") for line in said.splitlines())
    return victim


def test_every_step_is_committed_once_and_nothing_is_left(survived: TinyRun) -> None:
    for planned in survived.plan.cells:
        for spec in planned.steps:
            assert survived.ledger.read_commit(planned.cell.cell_key, spec.step) is not None
    assert survived.processes() == []
    for key in survived.keys.values():
        record = cell_workdir(survived.ledger.run_id, key) / "engine.group.json"
        assert not process_group.end_recorded(record)


def test_the_attempts_tell_the_story(survived: TinyRun) -> None:
    ar, mtp = ([attempt.outcome for attempt in survived.attempts(name)] for name in ("ar", "mtp"))
    assert ar == ["failed", "completed"]
    assert mtp[0] == "lost" and mtp[-1] == "completed"


def test_the_numbers_are_those_of_models_that_learnt_something(survived: TinyRun) -> None:
    frame = results(survived.store)
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


def test_every_row_carries_its_provenance(survived: TinyRun) -> None:
    frame = results(survived.store)
    for column in ("git_sha", "argv", "engine_version", "model_revision", "gpu_name", "host", "weights", "config_hash"):
        assert frame[column].null_count() == 0, column
