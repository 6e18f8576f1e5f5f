"""`bin/node`, which the tasks of sky/ run: under SkyPilot's own `bash -i`, with the real runner and environment."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

import pytest

CELL = {"SPECSWEEP_RUN": "no-such-run", "SPECSWEEP_CELL": "0123456789abcdef"}


def _as_sky_does(root: Path, script: Path, line: str, **env: str) -> subprocess.Popen[str]:
    script.write_text(f"cd {root}\n{line}\n", encoding="utf-8")
    return subprocess.Popen(
        ["/bin/bash", "-i", str(script)],
        env=os.environ | CELL | env,
        text=True,
        start_new_session=True,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )


def test_setup_finds_what_is_there_and_a_failed_runner_names_its_code(
    repo_root: Path, node_python: Path, tmp_path: Path
) -> None:
    setup = _as_sky_does(repo_root, tmp_path / "setup.sh", "exec bin/node setup")
    said, _ = setup.communicate(timeout=60)
    assert setup.returncode == 0 and str(node_python) in said
    run = _as_sky_does(repo_root, tmp_path / "run.sh", "exec bin/node run", SPECSWEEP_STORE=str(tmp_path / "store"))
    said, _ = run.communicate(timeout=60)
    assert run.returncode == 1
    assert "no-such-run" in said and said.splitlines()[-1] == "specsweep: node runner ended with code 1"


@pytest.mark.parametrize("wanted", ["patch", "engine", ""])
def test_what_it_cannot_do_fails_the_setup(repo_root: Path, tmp_path: Path, wanted: str) -> None:
    env = {"HOME": str(tmp_path), "SPECSWEEP_ENGINE_PATCH": "no/such/folder", "SPECSWEEP_VLLM": "vllm==0.32.0"}
    process = _as_sky_does(repo_root, tmp_path / "setup.sh", f"bin/node {wanted} && exec bin/node setup", **env)
    process.communicate(timeout=60)
    assert process.returncode != 0


def test_a_stop_reaches_the_runner_and_its_code_is_told(repo_root: Path, tmp_path: Path) -> None:
    """The runner's place is taken by a process that says what it got: the real one's answer is in tests/tasks."""
    python = tmp_path / "bin" / "python"
    python.parent.mkdir()
    python.write_text("#!/bin/sh\ntrap 'echo got TERM; exit 143' TERM\necho up\nwhile :; do sleep 0.05; done\n")
    python.chmod(0o755)
    copy = tmp_path / "repo" / "bin"
    copy.mkdir(parents=True)
    (copy / "node").write_bytes((repo_root / "bin" / "node").read_bytes())
    (copy / "environment").write_text(f"#!/bin/sh\necho {python}\n")
    for file in copy.iterdir():
        file.chmod(0o755)
    with _as_sky_does(
        copy.parent, tmp_path / "run.sh", "exec bin/node run", SPECSWEEP_STORE="s3://bucket/x"
    ) as process:
        assert process.stdout is not None
        lines = iter(process.stdout.readline, "")
        assert any(line == "up\n" for line in lines)
        os.kill(process.pid, signal.SIGTERM)
        said = "".join(lines)
    assert process.returncode == 143
    assert "got TERM" in said and said.endswith("specsweep: node runner ended with code 143\n")
