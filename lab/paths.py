"""Where the parts of one lab lie, and the constants that its processes agree on (standard library only)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

REGIONS = ("us-east-1", "us-east-2", "us-west-2")  # regions of the lab's cloud
BUCKET = "specsweep-lab"  # the bucket that is there from the start
RECLAIM_TAG = "specsweep-lab-reclaims"  # tag of an instance that the cloud itself is about to terminate
MARK = "SPECSWEEP_LAB"  # environment variable of the lab's processes; its value is the lab's root
FLEET_UID = 65534  # user (and group) that a lab started by root drops to: nobody, who owns nothing
CODE = Path(__file__).resolve().parent  # folder of this package; bodies see it, too
LONGEST_ROOT = 70  # a unix socket's path may have 107, and `fleet/i-0123456789abcdef0/ssh.sock` is below the root


class LabPaths:
    """The folder of a lab and what is in it."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.marker = self.root / "THIS-IS-A-LAB"  # a folder with this file is a lab's, and may be removed
        self.home = self.root / "home"  # SkyPilot's home (.sky, .aws); nothing in a body can read it
        self.scratch = self.root / "tmp"  # temporary files of SkyPilot's processes
        self.controls = self.root / "controls"  # what the lab's user tells the cloud, in the next five
        self.capacity = self.controls / "capacity.json"  # JSON: zone -> instances that it can hold; else no limit
        self.hold = self.controls / "hold-boot"  # while this file exists no new instance gets a body
        self.held_writes = self.controls / "held-writes"  # while it exists, writes of keys with its text hang
        self.held_looks = self.controls / "held-looks"  # while it exists, who looks for machines by its text waits
        self.weather = self.controls / "weather.json"  # JSON: what door and machines suffer (`lab.weather.conditions`)
        self.fleet = self.root / "fleet"  # everything that the daemon and the bodies write; it belongs to their user
        self.by_ip = self.fleet / "by-ip"  # links from an instance's public address to its ssh socket
        self.egress = self.fleet / "egress"  # of the socket by which bodies reach the cloud's endpoint; in each body
        self.shared = self.fleet / "shared"  # folder that all bodies share, writable
        self.ready = self.fleet / "ready.json"  # JSON with the ports, written by the daemon when all is up
        self.log = self.root / "daemon.log"  # output of the daemon
        self.record = self.root / "lab.json"  # JSON about the running lab: its ports, what was outside the root before


def write_whole(path: Path, text: str, mode: int | None = None) -> None:
    """Replace a file in one go: who reads it sees the old text or the new one."""
    temporary = path.with_suffix(".new")
    temporary.write_text(text, encoding="utf-8")
    if mode is not None:
        temporary.chmod(mode)
    temporary.rename(path)


class Inside(NamedTuple):
    """Fixed places within a body."""

    instance: Path = Path("/mnt/instance")
    egress: Path = Path("/mnt/egress")
    shared: Path = Path("/mnt/shared")
    stage: Path = Path("/mnt/read-only")
    home: Path = Path("/home/ubuntu")


INSIDE = Inside()

SSH_SOCKET = "ssh.sock"
EGRESS_SOCKET = "aws.sock"
SPEED_LOCK = "speed.lock"
KNOWN_MODELS = "vllm-cache"  # below `shared`: what this host's engines know of models' classes, as with an image
BODY_SPEC = "body.json"
BODY_LOG = "body.log"
FIRST_BOOT = "first-boot.sh"
POWERED_OFF = 66  # exit code of the first process of a body that shut down by itself

NAMESPACES = (
    *("unshare", "--user", "--map-root-user", "--mount", "--net", "--pid", "--uts", "--ipc"),
    *("--fork", "--kill-child"),
)
"""Starts a body: the command that follows is the first process of namespaces of its own, and dies with `unshare`."""


class DaemonSpec(NamedTuple):
    """What the daemon must know; paths are the host's."""

    root: str
    baked: str
    cache: str  # folder of the user that holds specsweep's environments and models
    python: str  # interpreter that the environments were made with
    read_only: Sequence[str]  # paths that appear in bodies at their own place
