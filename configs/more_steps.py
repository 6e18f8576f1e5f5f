"""Steps from outside the checkout. They work on this machine only, because nodes get nothing but the checkout."""

from __future__ import annotations

import os
from pathlib import Path

VARIABLE = "SPECSWEEP_STEPS"
"""Environment variable: a folder with more steps, in `configs/steps/`, `tasks/steps/` and `warehouse/steps/`."""


def more_steps(room: str) -> list[str]:
    """Folders to search for a room's steps besides its own; empty where the variable isn't set."""
    folder = os.environ.get(VARIABLE)
    return [str(Path(folder).absolute() / room / "steps")] if folder else []
