"""Which secrets go to a node, and that their file here is gone when the launch is over, however it ended."""

from __future__ import annotations

import json
import os
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
from warehouse.ledger.store.s3 import S3Store

NAMES = (*secrets.NAMES, "MY_KEY")
S3 = "s3://bucket/prefix"


@pytest.fixture(autouse=True)
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


def test_a_node_gets_what_is_set_and_of_a_docker_login_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HF_TOKEN", "MY_KEY", "SKYPILOT_DOCKER_PASSWORD"):
        monkeypatch.setenv(name, f"value of {name}")
    found = values_of((*NAMES, "SKYPILOT_DOCKER_PASSWORD"), "gs://bucket/prefix")
    assert found == {"HF_TOKEN": "value of HF_TOKEN", "MY_KEY": "value of MY_KEY"}


def test_keys_for_nodes_stand_before_those_that_rent(monkeypatch: pytest.MonkeyPatch) -> None:
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
    task: str, refused: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    require_no_keys_in_mounts(load_task(task))  # no keys at all
    set_keys(monkeypatch, "the user's")
    said = r"^sky/h100-cached\.yaml: file_mounts\./weights\.mode is 'MOUNT_CACHED': .*`aws sso login`"
    with pytest.raises(TaskFileError, match=said) if refused else nullcontext():
        require_no_keys_in_mounts(load_task(task))


def test_the_doctor_says_whose_keys_nodes_get_and_prints_a_policy(monkeypatch: pytest.MonkeyPatch) -> None:
    store = S3Store("bucket", "prefix")
    said = node_keys(store)
    assert said.remark and "role" in said.detail
    set_keys(monkeypatch, "the user's")
    said = node_keys(store)
    assert said.remark and "keys that you rent with" in said.detail
    assert json.dumps(policy("bucket", "prefix/runs/")) in said.remedy and "Delete" not in said.remedy
    set_keys(monkeypatch, "a node's", secrets.FOR_NODES)
    assert not node_keys(store).remark
