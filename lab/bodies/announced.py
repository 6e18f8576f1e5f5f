"""What the cloud has announced to one of its machines, in the words of EC2's and Google's metadata (standard library).

EC2: "Spot Instance interruption notices" and "EC2 instance rebalance recommendations" of its user guide. Google: "Spot
VMs", detecting preemption.
"""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

FILE = "announced.json"
"""In the body's folder, which its cloud writes and its metadata service reads."""

PREEMPTED = "/computeMetadata/v1/instance/preempted"
"""The one page that is Google's."""


class Announced(NamedTuple):
    """Moments in seconds since 1970; None: not announced."""

    risk_s: float | None = None
    """It is recommended to leave, since then."""
    reclaim_s: float | None = None
    """It is taken back then."""

    @classmethod
    def read(cls, folder: Path) -> Announced:
        """What stands in a body's folder; nothing, if there is no such file."""
        path = folder / FILE
        return cls(**json.loads(path.read_text(encoding="utf-8"))) if path.exists() else cls()

    def write(self, folder: Path) -> None:
        """Replace what stands there."""
        temporary = (folder / FILE).with_suffix(".new")
        temporary.write_text(json.dumps(self._asdict()), encoding="utf-8")
        temporary.chmod(0o644)
        temporary.rename(folder / FILE)

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
