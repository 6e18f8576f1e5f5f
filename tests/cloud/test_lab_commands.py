"""`sweep cloud-lab`, as it is typed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from configs.checkout import ROOT
from lab.cloud import Lab
from lab.home import user_hash
from tests.cloud.body_shell import BodyShell

pytestmark = pytest.mark.cloud

NAME = "specsweep-1d70d-fd7c376ff3"

Typed = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def typed(lab: Lab) -> Typed:
    """Runs `sweep cloud-lab` on a terminal of 80 columns; what it prints on both channels is in `stdout`."""

    def run(*arguments: str, root: Path = lab.places.root) -> subprocess.CompletedProcess[str]:
        argv = [sys.executable, "-m", "flows.terminal", "cloud-lab", *arguments, "--root", str(root)]
        env = os.environ | {"PYTHONPATH": str(ROOT), "COLUMNS": "80"}
        return subprocess.run(argv, cwd=ROOT, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)

    return run


def test_what_status_shows_can_be_reclaimed_by_name(lab: Lab, boot: Callable[..., BodyShell], typed: Typed) -> None:
    body = boot("us-west-2a")
    tags = [{"Key": "ray-cluster-name", "Value": f"{NAME}-{user_hash(lab.places.root)}"}]
    lab.client("ec2", body.region).create_tags(Resources=[body.instance_id], Tags=tags)
    (line,) = [line for line in typed("status").stdout.splitlines() if NAME in line]
    assert line.split()[:4] == [NAME, "us-west-2a", "running", "spot"]
    assert [each["instance_id"] for each in json.loads(typed("status", "--json").stdout)["instances"]] == [
        body.instance_id
    ]
    assert typed("preempt", NAME).stdout.split() == [body.instance_id]
    assert not any(each.alive for each in lab.instances())
    again = typed("preempt", NAME)
    assert again.returncode == 1
    assert f"no living instance of the lab is, or belongs to, '{NAME}'" in " ".join(again.stdout.split())


def test_capacity_is_limited_shown_and_lifted(lab: Lab, typed: Typed) -> None:
    assert typed("capacity", "us-east-1a", "0").returncode == 0
    assert "us-east-1a: room for 0" in typed("status").stdout
    assert lab.capacities() == {"us-east-1a": 0}
    assert typed("capacity", "us-east-1a", "-").returncode == 0
    assert lab.capacities() == {}
    wrong = typed("capacity", "us-east-1a", "many")
    assert wrong.returncode == 2
    assert "count is 'many'" in wrong.stdout


def test_env_points_a_shell_at_the_lab(lab: Lab, typed: Typed) -> None:
    exported = dict(line.removeprefix("export ").split("=", 1) for line in typed("env").stdout.splitlines())
    assert exported["SPECSWEEP_STORE"] == lab.store_url
    assert exported["AWS_ENDPOINT_URL"] == lab.env["AWS_ENDPOINT_URL"]
    assert exported["SPECSWEEP_SKY_HOME"] == str(lab.places.home)


def test_without_a_lab_it_says_how_to_get_one(typed: Typed, tmp_path: Path) -> None:
    for words in (["env"], ["preempt", NAME], ["capacity", "us-east-1a", "0"]):
        said = typed(*words, root=tmp_path / "lab")
        assert said.returncode == 1
        assert "sweep cloud-lab up" in said.stdout
        assert "Traceback" not in said.stdout
