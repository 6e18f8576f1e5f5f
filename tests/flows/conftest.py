"""The `sweep` command as a user runs it, on a sweep that the fake engine serves; a run, and plans with other steps."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from configs.checkout import ROOT
from configs.schema import Plan
from configs.step import MeasuredStep
from flows.clusters.skypilot.home import HOME_VARIABLE
from tests.busy_machine import PATIENCE_S
from tests.command_lines import start_command
from tests.fake_run import FakeRun
from tests.warehouse.ledger.store.conftest import s3_server as s3_server

Sweep = Callable[..., "subprocess.Popen[str]"]
Finish = Callable[..., str]


@pytest.fixture(autouse=True)
def home_of_skypilot(monkeypatch: pytest.MonkeyPatch) -> None:
    """SkyPilot in this process leaves the process's own HOME as it is."""
    monkeypatch.setenv(HOME_VARIABLE, str(Path.home()))


@pytest.fixture
def run(tmp_path: Path) -> FakeRun:
    return FakeRun(tmp_path)


def with_steps(plan: Plan, kind: type[MeasuredStep], **fields: object) -> Plan:
    cells = []
    for planned in plan.cells:
        steps = (step.model_copy(update=fields) if isinstance(step, kind) else step for step in planned.steps)
        cells.append(planned.model_copy(update={"steps": tuple(steps)}))
    return plan.model_copy(update={"cells": tuple(cells)})


@pytest.fixture
def start_sweep(tmp_path: Path) -> Sweep:
    """Starts `sweep ARGUMENTS` with state and store of its own, in a folder; `FAKE_ENGINE...` may be keywords."""

    def start(*arguments: str | Path, cwd: Path = ROOT, **env: str) -> subprocess.Popen[str]:
        own = {f"SPECSWEEP_{name.upper()}": str(tmp_path / name) for name in ("store", "state")}
        own |= {"FAKE_ENGINE_COUNT": str(tmp_path / "requests.jsonl"), "COLUMNS": "160"}
        return start_command(*arguments, env=own | env, cwd=cwd)

    return start


@pytest.fixture
def finish_sweep(start_sweep: Sweep) -> Finish:
    """Runs `sweep ARGUMENTS` to its end, which has this exit code: what it printed."""

    def finish(*arguments: str | Path, code: int = 0, **how: Any) -> str:
        process = start_sweep(*arguments, **how)
        said, _ = process.communicate(timeout=PATIENCE_S)
        assert process.returncode == code, said
        return said

    return finish
