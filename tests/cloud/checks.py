"""What the tests of the lab share: waiting, what may be left behind, an instance as a stranger with a key sees it."""

from __future__ import annotations

import os
import shlex
import subprocess
import tarfile
import tempfile
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO
from uuid import uuid4

import yaml

import tests.tasks.test_cell
from configs.checkout import ROOT
from lab.cloud import Lab
from lab.weather.settings import clear_weather
from tasks.host.environments import ensure

SHORT = Path("/var/tmp")  # a real disk, and a short path: sockets lie below a lab's folder

wait_until = partial(tests.tasks.test_cell.wait_until, every_s=0.1)
"""Ask again and again until something is so that takes a second or two."""


def server_log(lab: Lab) -> str:
    """The end of what the lab's SkyPilot API server said, for a failing test."""
    path = lab.paths.home / ".sky" / "api_server" / "server.log"
    return path.read_text(encoding="utf-8", errors="replace")[-4000:] if path.exists() else "(no API server's log)"


def nothing_left(lab: Lab) -> None:
    """No instance of any region is alive (or billed), and no process of one."""
    left = [each for each in lab.instances() if each.alive]
    assert not left, f"instances left running, and billed: {left}"
    wait_until(lambda: not lab.body_processes(), "no process of an instance is left")


def fine_again(lab: Lab) -> None:
    """Room in every zone, and no weather."""
    for zone in lab.capacities():
        lab.capacity(zone, None)
    clear_weather(lab.weather)


def new_lab() -> Lab:
    """One that is not up yet, and makes its folder."""
    return Lab(SHORT / f"sl{uuid4().hex[:8]}")


def run_sky(lab: Lab, *arguments: str) -> subprocess.CompletedProcess[str]:
    """A `sky` command against a lab, in its home."""
    binary = ensure("control").parent / "sky"
    cache = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    env = os.environ | lab.env | {"HOME": str(lab.paths.home), "XDG_CACHE_HOME": cache, "NO_COLOR": "1"}
    env["PATH"] = f"{binary.parent}{os.pathsep}{env['PATH']}"
    return subprocess.run([binary, *arguments], env=env, cwd=lab.paths.home, capture_output=True, text=True)


def silent(line: str) -> None:
    """Hears nothing of a lab that comes up."""


class BodyShell:
    def __init__(self, lab: Lab, region: str, instance: dict[str, Any], key: Path) -> None:
        self.lab, self.region, self.key = lab, region, key
        self.instance_id: str = instance["InstanceId"]
        self.zone: str = instance["Placement"]["AvailabilityZone"]
        self.address: str = instance["PublicIpAddress"]

    @classmethod
    def launch(cls, lab: Lab, zone: str, folder: Path) -> BodyShell:
        key = folder / "key"
        if not key.exists():
            subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", key], check=True)
        users = [{"name": "ubuntu", "ssh_authorized_keys": [key.with_suffix(".pub").read_text().strip()]}]
        ec2 = lab.client("ec2", zone[:-1])
        launched = ec2.run_instances(
            ImageId="ami-1e749f67", InstanceType="p5.4xlarge", MinCount=1, MaxCount=1,
            Placement={"AvailabilityZone": zone}, InstanceMarketOptions={"MarketType": "spot"},
            UserData="#cloud-config\n" + yaml.safe_dump({"users": users}),
        )["Instances"][0]  # fmt: skip
        return cls(lab, zone[:-1], _described(lab, zone[:-1], launched["InstanceId"]), key)

    def described(self) -> dict[str, Any]:
        return _described(self.lab, self.region, self.instance_id)

    def ssh(self, command: str, given: BinaryIO | None = None) -> subprocess.CompletedProcess[str]:
        """Run a command, with a file for its input; exit code 255: nobody answers there."""
        config = yaml.safe_load((self.lab.paths.home / ".sky" / "config.yaml").read_text())
        options = {
            "ProxyCommand": config["aws"]["ssh_proxy_command"],
            "StrictHostKeyChecking": "no",
            "UserKnownHostsFile": "/dev/null",
            "LogLevel": "ERROR",
            "IdentitiesOnly": "yes",
        }
        flags = [flag for name, value in options.items() for flag in ("-o", f"{name}={value}")]
        argv = ["ssh", "-F", "/dev/null", "-i", str(self.key), *flags, f"ubuntu@{self.address}", command]
        return subprocess.run(argv, capture_output=True, text=True, stdin=given or subprocess.DEVNULL)

    def wait_booted(self) -> BodyShell:
        wait_until(lambda: self.ssh("true").returncode == 0, "ssh answers")
        return self

    def bash(self, script: str) -> str:
        done = self.ssh(f"bash --login -c {shlex.quote(script)}")
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    def bring(self, *names: str) -> str:
        """Copy folders of the repository; where they are then. The repository itself may lie where no body looks."""
        with tempfile.TemporaryFile() as archive:
            with tarfile.open(fileobj=archive, mode="w") as packed:
                for name in names:
                    packed.add(ROOT / name, name)
            archive.seek(0)
            done = self.ssh("mkdir -p /tmp/code && tar -x -C /tmp/code", archive)
        assert done.returncode == 0, done.stderr
        return "/tmp/code"

    def terminate(self) -> None:
        if any(each.instance_id == self.instance_id and each.alive for each in self.lab.instances()):
            self.lab.client("ec2", self.region).terminate_instances(InstanceIds=[self.instance_id])


def _described(lab: Lab, region: str, instance_id: str) -> dict[str, Any]:
    answer = lab.client("ec2", region).describe_instances(InstanceIds=[instance_id])
    found: dict[str, Any] = answer["Reservations"][0]["Instances"][0]
    return found
