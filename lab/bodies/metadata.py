"""An instance's metadata service: just enough of IMDSv2 for boto3, SkyPilot's autodown, our provenance and notices.

Notices are worded as EC2's user guide has them (interruption, rebalance), and Google's "Spot VMs" (preemption).
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

from lab.paths import write_whole

ROLE = "skypilot-v1"  # name of the role (and instance profile) that SkyPilot gives its instances

_CREDENTIALS = json.dumps(
    {
        "Code": "Success",
        "Type": "AWS-HMAC",
        "AccessKeyId": "ASIALAB",
        "SecretAccessKey": "lab",
        "Token": "lab",
        "LastUpdated": "2020-01-01T00:00:00Z",
        "Expiration": "2099-01-01T00:00:00Z",
    }
)


class Metadata:
    """Answers the requests of one instance; `folder`: where its cloud announces to it."""

    def __init__(self, instance_id: str, instance_type: str, zone: str, private_ip: str, folder: Path) -> None:
        self._folder = folder
        role = "/latest/meta-data/iam/security-credentials"
        self._pages = {
            "/latest/api/token": "token",
            role: ROLE,
            f"{role}/{ROLE}": _CREDENTIALS,
            "/latest/meta-data/instance-id": instance_id,
            "/latest/meta-data/instance-type": instance_type,
            "/latest/meta-data/local-ipv4": private_ip,
            "/latest/meta-data/placement/availability-zone": zone,
            "/latest/meta-data/placement/region": zone[:-1],
        }

    async def handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one connection until the client leaves."""
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                path = head.split(b" ", 2)[1].decode("ascii").rstrip("/")
                body = (self._pages | Announced.read(self._folder).pages()).get(path)
                # Google's libraries take for Google's machine what says so on any other page
                writer.write(_response(body, flavor="Google" if path == PREEMPTED else ""))
                await writer.drain()
        writer.close()


def _response(body: str | None, flavor: str) -> bytes:
    status = "404 Not Found" if body is None else "200 OK"
    content = (body or "").encode("ascii")
    lines = (
        f"HTTP/1.1 {status}",
        "Content-Type: text/plain",
        "X-Aws-Ec2-Metadata-Token-Ttl-Seconds: 21600",
        f"Content-Length: {len(content)}",
        *([f"Metadata-Flavor: {flavor}"] if flavor else []),
    )
    return "\r\n".join(lines).encode("ascii") + b"\r\n\r\n" + content


FILE = "announced.json"  # in the body's folder, which its cloud writes and its metadata service reads
PREEMPTED = "/computeMetadata/v1/instance/preempted"  # the one page that is Google's


class Announced(NamedTuple):
    """Moments in seconds since 1970; None: not announced."""

    risk_s: float | None = None  # it is recommended to leave, since then
    reclaim_s: float | None = None  # it is taken back then

    @classmethod
    def read(cls, folder: Path) -> Announced:
        """What the file in a body's folder says; nothing, if there is no such file."""
        path = folder / FILE
        return cls(**json.loads(path.read_text(encoding="utf-8"))) if path.exists() else cls()

    def write(self, folder: Path) -> None:
        """Replace the file in `folder`."""
        write_whole(folder / FILE, json.dumps(self._asdict()), 0o644)

    def pages(self) -> dict[str, str]:
        """The pages of the metadata service that say so."""
        pages = {PREEMPTED: "FALSE"}
        if self.risk_s is not None:
            pages["/latest/meta-data/events/recommendations/rebalance"] = json.dumps({"noticeTime": _at(self.risk_s)})
        if self.reclaim_s is not None:
            said = json.dumps({"action": "terminate", "time": _at(self.reclaim_s)})
            pages |= {PREEMPTED: "TRUE", "/latest/meta-data/spot/instance-action": said}
        return pages

    def is_due(self, now_s: float) -> bool:
        """Whether the machine is to be taken back now."""
        return self.reclaim_s is not None and now_s >= self.reclaim_s


def _at(moment_s: float) -> str:
    return datetime.fromtimestamp(moment_s, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
