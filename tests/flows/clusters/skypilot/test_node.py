"""`bin/node`, which the tasks of sky/ run: under SkyPilot's own `bash -i`, with the real runner and environment.

And which secrets go to a node, and that their file here is gone when the launch is over, however it ended.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from contextlib import nullcontext
from pathlib import Path

import pytest

from configs import secrets
from configs.checkout import ROOT
from flows.clusters.skypilot.carried import carried, values_of
from flows.clusters.skypilot.task_file import TaskFileError, load_task, require_no_keys_in_mounts
from flows.terminal.doctor import node_keys, policy
from tests.busy_machine import PATIENCE_S
from tests.command_lines import SecretWatch
from tests.tasks.test_cell import wait_until
from warehouse.ledger.store.s3 import S3Store

CANARY = "canary-of-a-node-6b1e"
CELL = {"SPECSWEEP_RUN": "no-such-run", "SPECSWEEP_CELL": "0123456789abcdef"}


def _as_sky_does(root: Path, script: Path, line: str, **env: str) -> subprocess.Popen[str]:
    script.write_text(f"cd {root}\n{line}\n", encoding="utf-8")
    argv, nothing, pipe, same = ["/bin/bash", "-i", str(script)], subprocess.DEVNULL, subprocess.PIPE, subprocess.STDOUT
    env = os.environ | CELL | env
    return subprocess.Popen(argv, env=env, text=True, start_new_session=True, stdin=nothing, stdout=pipe, stderr=same)


def test_setup_finds_what_is_there_and_a_failed_runner_names_its_code(
    repo_root: Path, node_python: Path, tmp_path: Path
) -> None:
    setup = _as_sky_does(repo_root, tmp_path / "setup.sh", "exec bin/node setup")
    said, _ = setup.communicate(timeout=PATIENCE_S)
    assert setup.returncode == 0 and str(node_python) in said
    run = _as_sky_does(repo_root, tmp_path / "run.sh", "exec bin/node run", SPECSWEEP_STORE=str(tmp_path / "store"))
    said, _ = run.communicate(timeout=PATIENCE_S)
    assert run.returncode == 1
    assert "no-such-run" in said and said.splitlines()[-1] == "specsweep: node runner ended with code 1"


@pytest.mark.parametrize("wanted", ["patch", "engine", ""])
def test_what_it_cannot_do_fails_the_setup(repo_root: Path, tmp_path: Path, wanted: str) -> None:
    env = {"HOME": str(tmp_path), "SPECSWEEP_ENGINE_PATCH": "no/such/folder", "SPECSWEEP_VLLM": "vllm==0.32.0"}
    process = _as_sky_does(repo_root, tmp_path / "setup.sh", f"bin/node {wanted} && exec bin/node setup", **env)
    process.communicate(timeout=PATIENCE_S)
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


NAMES = (*secrets.NAMES, "MY_KEY")
S3 = "s3://bucket/prefix"


@pytest.fixture
def shell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A shell without secrets, and a home without credentials."""
    for name in [name for name in os.environ if name in NAMES or name.startswith(("AWS_", secrets.FOR_NODES))]:
        monkeypatch.delenv(name)
    monkeypatch.setattr(secrets, "_held", {})
    monkeypatch.setattr("boto3.DEFAULT_SESSION", None)
    monkeypatch.setenv("SPECSWEEP_STATE", str(tmp_path / "state"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "keys"))
    return tmp_path


def set_keys(monkeypatch: pytest.MonkeyPatch, whose: str, prefix: str = "") -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(prefix + name, whose)


def test_a_node_gets_what_is_set_and_of_a_docker_login_nothing(shell: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HF_TOKEN", "MY_KEY", "SKYPILOT_DOCKER_PASSWORD"):
        monkeypatch.setenv(name, f"value of {name}")
    found = values_of((*NAMES, "SKYPILOT_DOCKER_PASSWORD"), "gs://bucket/prefix")
    assert found == {"HF_TOKEN": "value of HF_TOKEN", "MY_KEY": "value of MY_KEY"}


def test_keys_for_nodes_stand_before_those_that_rent(shell: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    set_keys(monkeypatch, "the user's")
    set_keys(monkeypatch, "a node's", secrets.FOR_NODES)
    monkeypatch.setenv("AWS_SESSION_TOKEN", "of the user's keys")
    assert values_of(NAMES, S3) == {"AWS_ACCESS_KEY_ID": "a node's", "AWS_SECRET_ACCESS_KEY": "a node's"}
    assert not secrets.without_secrets(os.environ).keys() & {secrets.FOR_NODES + name for name in NAMES}
    assert secrets.secret("AWS_ACCESS_KEY_ID") == "the user's", "who rents goes on signing with it"
    assert "the user's" not in secrets.redacted("the user's") and "a node's" not in secrets.redacted("said: a node's")


def test_keys_that_lie_in_a_file_of_the_users_go_along_by_value(shell: Path) -> None:
    (shell / "keys").write_text("[default]\naws_access_key_id = AKIA1\naws_secret_access_key = s1\n")
    assert values_of(NAMES, S3) == {"AWS_ACCESS_KEY_ID": "AKIA1", "AWS_SECRET_ACCESS_KEY": "s1"}
    assert values_of(("HF_TOKEN",), S3) == {}, "a task that lists none gets none"


def test_the_file_is_ours_alone_and_gone_after_a_launch_that_failed(shell: Path) -> None:
    with pytest.raises(OSError, match="refused"), carried({"HF_TOKEN": "t"}) as mounts:
        (path,) = map(Path, mounts.values())
        assert json.loads(path.read_text()) == {"HF_TOKEN": "t"}
        assert (path.stat().st_mode & 0o777, path.parent.stat().st_mode & 0o777) == (0o600, 0o700)
        with carried({"HF_TOKEN": "t"}):
            assert path.exists(), "that of another launch that goes on stays"
        raise OSError("refused")
    assert not path.exists()


def test_what_a_killed_flow_left_is_removed_by_the_next_launch(shell: Path) -> None:
    code = (
        "import os\nfrom flows.clusters.skypilot.carried import carried\n"
        "with carried({'HF_TOKEN': 't'}): os.kill(os.getpid(), 9)"
    )
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT).returncode == -9
    assert len(list((shell / "state" / "secrets").iterdir())) == 1
    with carried({}) as mounts:
        assert mounts == {}
    assert list((shell / "state" / "secrets").iterdir()) == []


@pytest.mark.parametrize(("task", "refused"), [("h100-cached", True), ("h100-spot", False)])
def test_a_cached_mount_that_would_show_static_keys_is_refused(
    shell: Path, task: str, refused: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    require_no_keys_in_mounts(load_task(task))  # no keys at all
    set_keys(monkeypatch, "the user's")
    said = r"^sky/h100-cached\.yaml: file_mounts\./weights\.mode is 'MOUNT_CACHED': .*`aws sso login`"
    with pytest.raises(TaskFileError, match=said) if refused else nullcontext():
        require_no_keys_in_mounts(load_task(task))


def test_the_doctor_says_whose_keys_nodes_get_and_prints_a_policy(shell: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = S3Store("bucket", "prefix")
    said = node_keys(store)
    assert said.remark and "role" in said.detail
    set_keys(monkeypatch, "the user's")
    said = node_keys(store)
    assert said.remark and "keys that you rent with" in said.detail
    assert json.dumps(policy("bucket", "prefix/runs/")) in said.remedy and "Delete" not in said.remedy
    set_keys(monkeypatch, "a node's", secrets.FOR_NODES)
    assert not node_keys(store).remark
