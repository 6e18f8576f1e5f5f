"""Steps that lie outside the checkout, for this machine: nodes get the checkout only."""

from __future__ import annotations

import os
from pathlib import Path

VARIABLE = "SPECSWEEP_STEPS"
"""Folder with more steps, laid out as the checkout: `configs/steps/`, `tasks/steps/`, `warehouse/steps/`."""


def more_steps(room: str) -> list[str]:
    """Folders to look for steps in besides the room's own."""
    folder = os.environ.get(VARIABLE)
    return [str(Path(folder).absolute() / room / "steps")] if folder else []
