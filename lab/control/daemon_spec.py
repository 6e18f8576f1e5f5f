"""What the cloud's process is started with (standard library only: both sides of the start read it)."""

from __future__ import annotations

import json
from typing import NamedTuple


class DaemonSpec(NamedTuple):
    """What the daemon must know; paths are the host's."""

    root: str
    baked: str
    cache: str
    """Folder of the user that holds specsweep's environments and models."""
    python: str
    """Interpreter that the environments were made with."""
    read_only: tuple[str, ...]
    """Paths that appear in bodies at their own place."""

    def dump(self) -> str:
        """The specification as one argument of a command line."""
        return json.dumps(self._asdict())

    @classmethod
    def load(cls, text: str) -> DaemonSpec:
        """The inverse of `dump`."""
        document = json.loads(text)
        return cls(**(document | {"read_only": tuple(document["read_only"])}))
