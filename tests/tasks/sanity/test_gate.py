"""Smoke's questions, asked of a fake engine: what stops a cell, what is kept, and how far the step says it is."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from configs.checkout import ROOT
from configs.steps.smoke import SmokeStep
from configs.visits import Measurement
from tasks.client import Client
from tasks.context import Progress, StepContext
from tasks.engine.server import free_port
from tasks.frameworks.process import Frameworks
from tasks.guards.finding import Judgement
from tasks.steps import smoke
from tests.fake_run import FakeRun

HEALTHY_S = 30.0
"""Until the fake engine answers; beside busy neighbours it takes seconds."""


class Gate:
    """The smoke step of a fake run's cell, in this process: what it judged, said on the way and stored."""

    def __init__(self, folder: Path, url: str, **model: Any) -> None:
        """Run it; `model` are facts of the model that differ from the fake run's."""
        run = FakeRun(folder)
        cell = run.planned.cell
        cell = cell.model_copy(update={"model": cell.model.model_copy(update=model)})
        self.said: list[Progress] = []
        self.judged: list[Judgement] = asyncio.run(
            self._measure(run, run.planned.model_copy(update={"cell": cell}), url)
        )

    async def _measure(self, run: FakeRun, planned: Any, url: str) -> list[Judgement]:
        spec = next(step for step in planned.steps if isinstance(step, SmokeStep))
        async with Client(url, planned.cell.model, planned.cell.technique) as client:
            frameworks = Frameworks(run.folder)
            measurement, told = Measurement(spec), self.said.append
            ctx = StepContext(planned, planned.cell, client, run.ledger, measurement, 1, told, frameworks)
            judged = await smoke.measure(ctx, spec)
            self.tables = {part.table for part in ctx.parts}
            return judged

    @property
    def reasons(self) -> set[str]:
        return {finding.reason.value for judgement in self.judged for finding in judgement.findings}


@pytest.fixture
def engine(request: pytest.FixtureRequest) -> Iterator[str]:
    """A fake engine that tells the lie of the test's parameter; honest without one."""
    port = free_port()
    env = {**os.environ, "PYTHONPATH": str(ROOT), "FAKE_ENGINE": getattr(request, "param", "honest")}
    argv = [sys.executable, str(ROOT / "tests" / "fake_engine.py"), "serve", "m", "--port", str(port)]
    process = subprocess.Popen(argv, env=env)
    url, deadline = f"http://127.0.0.1:{port}", time.monotonic() + HEALTHY_S
    try:
        while True:
            try:
                assert httpx.get(f"{url}/health", trust_env=False).status_code == 200
                break
            except httpx.TransportError:
                assert time.monotonic() < deadline, "the fake engine does not get healthy"
        yield url
    finally:
        process.kill()
        process.wait(30)


def test_an_honest_engine_passes_and_its_progress_counts_what_is_tried_only(tmp_path: Path, engine: str) -> None:
    gate = Gate(tmp_path, engine)
    assert gate.reasons == set()
    ends = [round(said.percent) for said in gate.said if "right" in said.line or said.line == "generation 5/5"]
    assert ends == [33, 67, 100], "sanity, throughput and eval-tiny; parity has nothing to try"
    assert gate.said[0].line == "10 of 10 sanity questions right"


@pytest.mark.parametrize("engine", ["insane"], indirect=True)
def test_a_model_without_answers_is_found_by_the_questions_alone(tmp_path: Path, engine: str) -> None:
    assert Gate(tmp_path, engine).reasons == {"failed_sanity"}


@pytest.mark.parametrize("engine", ["loop", "insane"], indirect=True)
def test_of_dummy_weights_nobody_asks_for_sense(tmp_path: Path, engine: str) -> None:
    gate = Gate(tmp_path, engine, weights="dummy")
    assert not gate.reasons & {"failed_sanity", "looping_text", "gibberish", "blank_output"}
    assert "sanity" not in gate.tables


@pytest.mark.parametrize("engine", ["insane"], indirect=True)
def test_a_member_of_the_demo_family_is_asked_its_own_questions(tmp_path: Path, engine: str) -> None:
    assert Gate(tmp_path, engine, hub_id=None, family_member="target").reasons == set()


@pytest.mark.parametrize("engine", ["at_chance"], indirect=True)
def test_a_member_of_the_demo_family_that_guesses_is_insane(tmp_path: Path, engine: str) -> None:
    gate = Gate(tmp_path, engine, hub_id=None, family_member="target")
    assert "failed_sanity" in gate.reasons


@pytest.mark.parametrize("engine", ["cut_off"], indirect=True)
def test_answers_that_are_cut_off_are_named_so(tmp_path: Path, engine: str) -> None:
    found = [finding for finding in Gate(tmp_path, engine).judged[0].findings if finding.reason == "failed_sanity"]
    assert [finding.severity for finding in found] == ["suspect"], "unknown is not wrong"
    assert "10 of 10" in found[0].sentence and "en-sum (cut off after 12 tokens)" in found[0].sentence


@pytest.mark.parametrize("engine", ["noise"], indirect=True)
def test_text_that_its_own_model_finds_improbable_is_gibberish(tmp_path: Path, engine: str) -> None:
    assert Gate(tmp_path, engine).reasons == {"gibberish"}


@pytest.mark.slow(5)
def test_an_insane_engines_cell_is_rejected_before_anything_is_measured(tmp_path: Path, node_python: Path) -> None:
    run = FakeRun(tmp_path)
    code, said = run.finish(node_python, "insane")
    assert code == 3, said
    commit = run.commit("smoke")
    assert (commit.verdict, commit.reasons) == ("rejected", ("failed_sanity",))
    assert all(run.ledger.read_commit(run.key, step) is None for step in ("throughput", "parity", "eval-tiny"))
    answers = run.rows("smoke", "sanity")
    assert [row["body"] for row in answers] == ["Lorem ipsum"] * 10
    assert not any(row["is_right"] for row in answers)
    details = run.rows("smoke", "verdicts")[0]["details"]
    assert any("0 of 10" in sentence and "en-sum ('Lorem ipsum')" in sentence for sentence in details), details
