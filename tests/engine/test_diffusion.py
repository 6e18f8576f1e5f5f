"""Block diffusion through the real vLLM and Triton's interpreter; hardly trained: what it says is garbage, but real."""

from __future__ import annotations

import asyncio
import subprocess
from math import ceil
from pathlib import Path

import pytest

from configs.checkout import ROOT
from flows.plans import engine_environments, make_plan
from tasks import meters
from tasks.client import Client, Reply, StreamReply
from tasks.engine import command
from tasks.engine.server import Engine, free_port
from tasks.family import members
from tasks.host import environments
from tasks.meters import Counters
from tasks.prompts import Prompt
from tests.busy_machine import PATIENCE_S

pytestmark = [pytest.mark.engine, pytest.mark.slow(70)]

SCALE = 0.01
CANVAS, STEPS = 16, 3  # asked of a checkpoint that has 32 tokens and 16 steps
MAX_TOKENS = 40  # two canvases and a part of the next
PLAN = make_plan("demo-diffusion")
CELL = PLAN.cells[0].cell.model_copy(update={"canvas_length": CANVAS, "denoising_steps": STEPS})


@pytest.fixture(scope="module")
def family(engine_python: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A family's folder whose diffusion member had a hundredth of its training."""
    folder = tmp_path_factory.mktemp("family")
    argv = [engine_python, "-m", "tasks.family.training.build", "--only", "diffusion", "--steps-scale", str(SCALE)]
    subprocess.run([*argv, "--out", folder], cwd=ROOT, check=True, timeout=PATIENCE_S)
    return folder


@pytest.fixture(autouse=True)
def served_from(family: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(members, "trained_dir", lambda: family)


def test_without_its_overlay_the_cell_names_the_remedy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(environments, "overlay_of", lambda _: None)
    with pytest.raises(command.EngineUnavailable, match="run `bin/environment engine-diffusion`"):
        command.engine_command(CELL, 1, tmp_path)


def test_a_canvas_model_is_served_and_returns_exactly_what_is_asked(tmp_path: Path) -> None:
    assert engine_environments(PLAN) == ["engine-cpu", "engine-diffusion"]
    environments.ensure("engine-diffusion")
    reply, streamed, counted = asyncio.run(ask(tmp_path))
    assert (reply.completion_tokens, reply.finish_reason) == (MAX_TOKENS, "length")
    assert (streamed.completion_tokens, streamed.finish_reason) == (MAX_TOKENS, "length")
    assert counted.generation_tokens == 2 * MAX_TOKENS and counted.drafts is None
    canvases = 2 * ceil(MAX_TOKENS / CANVAS)
    assert counted.committed_tokens == canvases * CANVAS, "of the checkpoint's own canvas it would be 128"
    assert 2 * canvases <= (counted.denoising_steps or 0) <= canvases * (STEPS + 1), "a step more commits"


async def ask(workdir: Path) -> tuple[Reply, StreamReply, Counters]:
    port = free_port()
    engine = Engine(command.engine_command(CELL, port, workdir), port, workdir, CELL.engine.start_timeout_s)
    try:
        await engine.start(lambda _: None)
        async with Client(engine.base_url, CELL.model, CELL.technique) as client:
            body = client.request(Prompt("what color is fox ?"), MAX_TOKENS, fixed=True)
            return await client.complete(body), await client.stream(body), meters.parse(await client.text("/metrics"))
    finally:
        engine.stop()
