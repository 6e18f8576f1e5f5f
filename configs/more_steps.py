"""Steps from outside the checkout. They work on this machine only, because nodes get nothing but the checkout."""

from __future__ import annotations

import os
from pathlib import Path

from configs.errors import SpecsweepError

VARIABLE = "SPECSWEEP_STEPS"
"""Environment variable: a folder with more steps, in the same sub-folders as the checkout's, `configs/steps/` first."""


def more_steps(room: str) -> list[str]:
    """Further folders to search for a room's steps; empty where the variable isn't set."""
    folder = os.environ.get(VARIABLE)
    if not folder:
        return []
    path = Path(folder).absolute()
    if not path.is_dir():
        raise SpecsweepError(f"{VARIABLE} is {folder!r}: no such folder; name one that has configs/steps/, or unset it")
    os.environ[VARIABLE] = str(path)  # processes that are started from here may work in another folder
    return [str(path / room / "steps")]
