"""`sweep cloud-lab`, as it is typed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import boto3
import pytest
from botocore.exceptions import ClientError

from configs.checkout import ROOT
from lab.cloud import Lab
from lab.startup import user_hash
from tests.cloud.checks import BodyShell

pytestmark = [pytest.mark.cloud, pytest.mark.lab]

NAME = "specsweep-1d70d-fd7c376ff3"

Typed = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def typed(lab: Lab) -> Typed:
    """Runs `sweep cloud-lab` on a terminal of 80 columns; what it prints on both channels is in `stdout`."""

    def run(*arguments: str, root: Path = lab.paths.root) -> subprocess.CompletedProcess[str]:
        argv = [sys.executable, "-m", "flows.terminal", "cloud-lab", *arguments, "--root", str(root)]
        env = os.environ | {"PYTHONPATH": str(ROOT), "COLUMNS": "80"}
        return subprocess.run(argv, cwd=ROOT, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)

    return run


def test_what_status_shows_can_be_reclaimed_by_name(lab: Lab, boot: Callable[..., BodyShell], typed: Typed) -> None:
    body = boot("us-west-2a").wait_booted()
    tags = [{"Key": "ray-cluster-name", "Value": f"{NAME}-{user_hash(lab.paths.root)}"}]
    lab.client("ec2", body.region).create_tags(Resources=[body.instance_id], Tags=tags)
    (line,) = [line for line in typed("status").stdout.splitlines() if NAME in line]
    assert line.split()[:4] == [NAME, "us-west-2a", "running", "spot"]
    (shown,) = json.loads(typed("status", "--json").stdout)["instances"]
    assert shown["instance_id"] == body.instance_id
    assert typed("notice", NAME, "--rebalance").stdout.split() == [body.instance_id]
    assert typed("preempt", NAME).stdout.split() == [body.instance_id]
    assert not any(each.alive for each in lab.instances())
    again = typed("preempt", NAME)
    assert again.returncode == 1
    assert f"no living instance of the lab is, or belongs to, '{NAME}'" in " ".join(again.stdout.split())


def test_capacity_is_limited_shown_and_lifted(lab: Lab, typed: Typed) -> None:
    assert typed("capacity", "us-east-1a", "0").returncode == 0
    assert "us-east-1a: room for 0" in typed("status").stdout and lab.capacities() == {"us-east-1a": 0}
    assert typed("capacity", "us-east-1a", "-").returncode == 0 and lab.capacities() == {}
    wrong = typed("capacity", "us-east-1a", "many")
    assert wrong.returncode == 2 and "count is 'many'" in wrong.stdout


def test_weather_is_made_shown_and_cleared(lab: Lab, boot: Callable[..., BodyShell], typed: Typed) -> None:
    def door(region: str) -> Any:
        keys = {"aws_access_key_id": "lab", "aws_secret_access_key": "lab"}
        return boto3.client("ec2", region_name=region, endpoint_url=lab.env["AWS_ENDPOINT_URL"], **keys)

    assert typed("weather").stdout.strip() == "fine weather"
    typed("weather", "us-east-1", "unauthorized")
    typed("weather", "us-east-2", "quota", "--for", "10m")
    shown = typed("weather", "machines", "setup", "0.1").stdout
    assert "us-east-1: unauthorized" in shown and "us-east-2: quota, " in shown and "machines: setup 0.1 s" in shown
    with pytest.raises(ClientError, match="UnauthorizedOperation"):
        door("us-east-1").describe_instances()
    rent = {"ImageId": "ami-1e749f67", "InstanceType": "p5.4xlarge", "MinCount": 1, "MaxCount": 1}
    with pytest.raises(ClientError, match="VcpuLimitExceeded"):
        door("us-east-2").run_instances(**rent)
    assert lab.instances() is not None, "who looks on is not refused"
    body = boot("us-west-2a").wait_booted()
    body.bash("echo true > /tmp/sky_setup_1 && bash -i /tmp/sky_setup_1 && test -d ~/.slow-setup")
    signed = "Authorization: AWS4-HMAC-SHA256 Credential=lab/20260101/us-east-1/s3/aws4_request"
    ask = f"curl --silent --output /dev/null --header '{signed}' $AWS_ENDPOINT_URL/"
    body.bash(ask)
    typed("weather", "store", "away")
    assert body.bash(f"{ask} || echo cut off") == "cut off", "the store is away for machines, too"
    assert typed("weather", "clear").stdout.strip() == "fine weather"
    body.bash(ask)
    wrong = typed("weather", "store", "rain")
    assert wrong.returncode == 1 and "there is no weather 'rain' at store" in " ".join(wrong.stdout.split())


def test_env_points_a_shell_at_the_lab(lab: Lab, typed: Typed) -> None:
    exported = dict(line.removeprefix("export ").split("=", 1) for line in typed("env").stdout.splitlines())
    assert exported["SPECSWEEP_STORE"] == lab.store_url
    assert exported["AWS_ENDPOINT_URL"] == lab.env["AWS_ENDPOINT_URL"]
    assert exported["SPECSWEEP_SKY_HOME"] == str(lab.paths.home)


def test_without_a_lab_it_says_how_to_get_one(typed: Typed, tmp_path: Path) -> None:
    for words in (["env"], ["preempt", NAME], ["capacity", "us-east-1a", "0"]):
        said = typed(*words, root=tmp_path / "lab")
        assert said.returncode == 1
        assert "sweep cloud-lab up" in said.stdout and "Traceback" not in said.stdout
