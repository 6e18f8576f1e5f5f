"""Exit codes of the node runner."""

from __future__ import annotations

import os
from enum import IntEnum


class Exit(IntEnum):
    """How the runner ended, for whoever started it.

    DONE: everything is measured; FAILED: try again; REJECTED: the smoke step says that the cell is insane; LEASE_HELD:
    somebody else measures it; SUPERSEDED: somebody else took it over; STOPPED: asked to stop (a spot notice), finished
    items are kept.
    """

    DONE = 0
    FAILED = 1
    REJECTED = 3
    LEASE_HELD = os.EX_TEMPFAIL
    SUPERSEDED = 76
    STOPPED = 143
