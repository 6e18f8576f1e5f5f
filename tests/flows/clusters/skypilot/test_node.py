"""`bin/node`, which the tasks of sky/ run: under SkyPilot's own `bash -i`, with the real runner and environment."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from pathlib import Path

import pytest

from tests.secret_watch import SecretWatch
from tests.tasks.test_cell import wait_until

CANARY = "canary-of-a-node-6b1e"
CELL = {"SPECSWEEP_RUN": "no-such-run", "SPECSWEEP_CELL": "0123456789abcdef"}


def _as_sky_does(root: Path, script: Path, line: str, **env: str) -> subprocess.Popen[str]:
    script.write_text(f"cd {root}\n{line}\n", encoding="utf-8")
    argv, nothing, pipe, same = ["bash", "-i", script], subprocess.DEVNULL, subprocess.PIPE, subprocess.STDOUT
    env = os.environ | CELL | env
    return subprocess.Popen(argv, env=env, text=True, start_new_session=True, stdin=nothing, stdout=pipe, stderr=same)


def test_setup_finds_what_is_there_and_a_failed_runner_names_its_code(
    repo_root: Path, node_python: Path, tmp_path: Path
) -> None:
    setup = _as_sky_does(repo_root, tmp_path / "setup.sh", "exec bin/node setup")
    said, _ = setup.communicate(timeout=240)
    assert setup.returncode == 0 and str(node_python) in said
    run = _as_sky_does(repo_root, tmp_path / "run.sh", "exec bin/node run", SPECSWEEP_STORE=str(tmp_path / "store"))
    said, _ = run.communicate(timeout=240)
    assert run.returncode == 1
    assert "no-such-run" in said and said.splitlines()[-1] == "specsweep: node runner ended with code 1"


@pytest.mark.parametrize("wanted", ["patch", "engine", ""])
def test_what_it_cannot_do_fails_the_setup(repo_root: Path, tmp_path: Path, wanted: str) -> None:
    env = {"HOME": str(tmp_path), "SPECSWEEP_ENGINE_PATCH": "no/such/folder", "SPECSWEEP_VLLM": "vllm==0.32.0"}
    process = _as_sky_does(repo_root, tmp_path / "setup.sh", f"bin/node {wanted} && exec bin/node setup", **env)
    process.communicate(timeout=240)
    assert process.returncode != 0


def test_a_stop_reaches_the_runner_and_its_code_is_told(repo_root: Path, tmp_path: Path) -> None:
    """The runner's place is taken by a process that says what it got: the real one's answer is in tests/tasks."""
    says = "trap 'echo got TERM; exit 143' TERM\necho up\nwhile :; do sleep 0.05; done"
    copy = _with_runner(repo_root, tmp_path, says)
    with _as_sky_does(copy, tmp_path / "run.sh", "exec bin/node run", SPECSWEEP_STORE="s3://bucket/x") as process:
        assert process.stdout is not None
        lines = iter(process.stdout.readline, "")
        assert any(line == "up\n" for line in lines)
        os.kill(process.pid, signal.SIGTERM)
        said = "".join(lines)
    assert process.returncode == 143
    assert "got TERM" in said and said.endswith("specsweep: node runner ended with code 143\n")


def test_secrets_come_from_a_file_that_is_gone_before_anything_starts(repo_root: Path, tmp_path: Path) -> None:
    left = tmp_path / ".specsweep-secrets"
    left.write_text(json.dumps({"HF_TOKEN": CANARY}), encoding="utf-8")
    left.chmod(0o600)
    # the copy of a runner says what it finds behind descriptor 9, and waits until it was looked at
    says = f"cat <&9 > {tmp_path}/got\necho up\nread said < {tmp_path}/seen"
    copy = _with_runner(repo_root, tmp_path, says, making=f"ls {left} /proc/self/fd/9 >&2 && touch {tmp_path}/reached")
    os.mkfifo(tmp_path / "seen")
    watch = SecretWatch(CANARY)
    line = "set -x; export SHELLOPTS; exec bin/node run"
    env = {"HOME": str(tmp_path), "SPECSWEEP_STORE": "x"}
    with watch.watching(), _as_sky_does(copy, tmp_path / "run.sh", line, **env) as run:
        assert run.stdout is not None
        said = "".join(iter(lambda: run.stdout and run.stdout.readline(), "up\n"))
        wait_until(lambda: any("--secrets-fd 9" in command for command in watch.commands), "the runner was seen", 30)
        (tmp_path / "seen").write_text("go\n")
        said += run.stdout.read()
    assert json.loads((tmp_path / "got").read_text()) == {"HF_TOKEN": CANARY}
    assert not left.exists() and not (tmp_path / "reached").exists(), "what makes the environment can't get at them"
    assert watch.leaks == set()
    assert "+ exec" in said and CANARY not in said, "nor does a shell that tells its commands"
    scripts = [path for path in tmp_path.rglob("*") if path.is_file() and path.name != "got"]
    assert not [path for path in scripts if CANARY.encode() in path.read_bytes()]


def _with_runner(root: Path, tmp_path: Path, says: str, making: str = ":") -> Path:
    """A copy of `bin/node`, whose runner is a shell script; `making` runs where environments are made."""
    python = tmp_path / "bin" / "python"
    python.parent.mkdir()
    python.write_text(f"#!/bin/sh\n{says}\n")
    copy = tmp_path / "repo" / "bin"
    copy.mkdir(parents=True)
    (copy / "node").write_bytes((root / "bin" / "node").read_bytes())
    (copy / "environment").write_text(f"#!/bin/sh\n{making}\necho {python}\n")
    for file in (python, *copy.iterdir()):
        file.chmod(0o755)
    return copy.parent
