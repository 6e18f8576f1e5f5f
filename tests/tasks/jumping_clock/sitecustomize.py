"""A FAKE wall clock, for a PYTHONPATH: it jumps by FAKE_CLOCK_JUMP_S as soon as the file FAKE_CLOCK_FILE exists.

What has passed since boot goes on as it does: that is what `adjtime`, a moved virtual machine or a person leaves alone.
"""

from __future__ import annotations

import os
import time

JUMP_S = float(os.environ["FAKE_CLOCK_JUMP_S"])
FILE = os.environ["FAKE_CLOCK_FILE"]

true = time.time


def jumping() -> float:
    """Seconds since 1970, as the machine would have them now."""
    return true() + (JUMP_S if os.path.exists(FILE) else 0.0)  # noqa: PTH110


time.time = jumping
