"""An engine in a container: what the runtime is told, and what a killed runner leaves of it."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tasks.engine import container
from tasks.engine.command import engine_command
from tasks.engine.machine import cell_workdir, the_only_engine
from tasks.engine.server import Engine, free_port
from tests.fake_box import FakeBox
from tests.fake_run import FakeRun


def test_a_container_that_a_killed_runner_left_is_removed_before_the_next_engine_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    box = FakeBox(tmp_path / "box")
    box.docker()
    for name, value in {**box.env, "SPECSWEEP_STATE": str(tmp_path / "state"), "HF_HOME": str(tmp_path / "hf")}.items():
        monkeypatch.setenv(name, value)
    cell = FakeRun(tmp_path).planned.cell
    served = cell.engine.model_copy(update={"command": ("docker", "run", "an/image")})
    workdir, port = cell_workdir("r1", cell.cell_key), free_port()
    left = Engine(engine_command(cell.model_copy(update={"engine": served}), port, workdir), port, workdir, 30)
    said: list[str] = []

    async def next_runner() -> None:
        await left.start(lambda _: None)
        inside = (workdir / "engine.cid").read_text()
        assert Path(f"/proc/{inside}").exists()
        assert left.pids() == [], "the runtime's own process is none of the engine's"
        async with the_only_engine(said.append):
            assert (box.folder / "removed").read_text().split() == [inside]
            assert not list(workdir.glob("engine.c*")), "it is forgotten, too"

    try:
        asyncio.run(next_runner())
    finally:
        left.stop()
    assert "killed runner" in said[0]


def test_what_the_user_says_of_network_and_memory_stands(tmp_path: Path) -> None:
    given = ("podman", "run", "--network=bridge", "--shm-size", "8g", "--rm", "an/image", "vllm")
    words = container.words_inside(given, ["HF_TOKEN", "HF_TOKEN"], [tmp_path / "hub"], tmp_path)
    added = [f"--cidfile={tmp_path}/engine.cid", "--env=HF_TOKEN", f"--volume={tmp_path}/hub:{tmp_path}/hub"]
    assert words == (*given[:2], *added, *given[2:])


@pytest.mark.parametrize("words", [("vllm",), ("/opt/docker/bin/vllm", "run"), ("docker", "compose", "up")])
def test_other_commands_are_no_containers(words: tuple[str, ...]) -> None:
    assert not container.is_container(words)
