"""What the weather is: one JSON file that the lab's user writes and the cloud reads (standard library only)."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any, NamedTuple

from lab.paths import REGIONS, write_whole

STORE, CLOUD, MACHINES = "store", "cloud", "machines"  # where weather can be, in addition to the name of a region


class Kind(NamedTuple):
    """One kind of weather: what its amount is, the amount where none is given (None: one has to be), what it does."""

    unit: str
    default: float | None
    does: str


_OF_A_DOOR = {
    "away": Kind("", 1.0, "every connection is reset"),
    "half-open": Kind("", 1.0, "requests are accepted and never answered"),
    "delay": Kind("s", None, "each request waits so long before it is passed on"),
    "cut": Kind("share", 1.0, "of the requests are reset before anything has happened"),
    "lost-answer": Kind("share", 1.0, "of the requests are obeyed, and reset before the answer"),
    "slow-down": Kind("share", 1.0, "of the requests are answered 503, nothing has happened"),
}
_OF_CREATES = {"conflict": Kind("share", 1.0, "of the create-only writes are answered 409, nothing has happened")}
_OF_A_REGION = {
    "unauthorized": Kind("", 1.0, "EC2 answers UnauthorizedOperation"),
    "quota": Kind("", 1.0, "nothing can be rented: MaxSpotInstanceCountExceeded, VcpuLimitExceeded"),
}
_OF_MACHINES = {
    "image": Kind("s", None, "new machines are up so long before their ssh answers"),
    "setup": Kind("s", None, "the task's setup takes so much longer on machines that boot from now on"),
}

KINDS: dict[str, dict[str, Kind]] = {
    STORE: _OF_A_DOOR | _OF_CREATES,
    CLOUD: _OF_A_DOOR | _OF_A_REGION,
    MACHINES: _OF_MACHINES,
} | {region: _OF_A_REGION for region in REGIONS}
"""Where -> what can be there."""


class Condition(NamedTuple):
    """Some weather; `until_s` is a moment of this machine's clock (seconds of Unix), None: until it is cleared."""

    where: str
    what: str
    amount: float
    until_s: float | None

    @property
    def says(self) -> str:
        """It, in a line."""
        kind = KINDS[self.where][self.what]
        unit = {"s": f" {self.amount:g} s", "share": f" {self.amount:.0%}"}.get(kind.unit, "")
        left = "" if self.until_s is None else f", {max(0.0, self.until_s - time.time()):.0f} s more"
        return f"{self.where}: {self.what}{unit}{left} ({kind.does})"


class Conditions:
    """The file, read again only when it has changed: every request at the door asks."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._seen: tuple[int, int] | None = None
        self._all: tuple[Condition, ...] = ()

    def now(self) -> list[Condition]:
        """What has not passed yet, by place and kind."""
        moment_s = time.time()
        return [each for each in self._read() if each.until_s is None or moment_s < each.until_s]

    def amount(self, where: str, what: str) -> float | None:
        """How much of it there is; None: none."""
        return next((each.amount for each in self.now() if (each.where, each.what) == (where, what)), None)

    def write(self, conditions: list[Condition]) -> None:
        """Replace them all, in one go."""
        write_whole(self.path, json.dumps([each._asdict() for each in sorted(conditions)]))

    def _read(self) -> tuple[Condition, ...]:
        try:
            stat = self.path.stat()
            if (stat.st_mtime_ns, stat.st_ino) != self._seen:
                documents: list[dict[str, Any]] = json.loads(self.path.read_text(encoding="utf-8"))
                self._all, self._seen = tuple(Condition(**each) for each in documents), (stat.st_mtime_ns, stat.st_ino)
        except FileNotFoundError:
            return ()
        return self._all
