"""Whose SkyPilot a process talks to: the user's own, or one in a home of the project's (SPECSWEEP_SKY_HOME).

Import `sky` only after `enter()`: it reads its home, its configuration and the API server's address at import.
"""

from __future__ import annotations

import os
from pathlib import Path

HOME_VARIABLE = "SPECSWEEP_SKY_HOME"
"""Folder that SkyPilot takes for the user's home: .sky, .aws, .ssh, .slurm and .config lie in it."""

LONGEST_TMPDIR = 75
"""Characters: a unix socket's path may have 107, and `/pymp-12345678/listener-12345678` is below the folder."""


def environment() -> dict[str, str]:
    """Variables of a process whose SkyPilot has a home of its own; empty if none is asked for."""
    asked = os.environ.get(HOME_VARIABLE)
    if not asked:
        return {}
    home = Path(asked).absolute()
    cache = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")  # our environments stay where they are
    return {
        "HOME": str(home),
        "XDG_CACHE_HOME": cache,
        "SKYPILOT_DISABLE_USAGE_COLLECTION": "1",
        "SPT_NOENV": "1",  # process titles leave /proc/<pid>/environ alone: the lab finds its processes by it
    }


def server_environment() -> dict[str, str]:
    """The same for the API server, which leaves temporary folders when it is killed: they go into that home, too."""
    variables = environment()
    if variables:
        folder = Path(variables["HOME"]) / ".sky" / "tmp"
        if len(str(folder)) <= LONGEST_TMPDIR:
            folder.mkdir(parents=True, exist_ok=True)
            variables["TMPDIR"] = str(folder)
    return variables


def enter() -> None:
    """Set `environment()` in this process; nothing changes if no home is asked for."""
    os.environ.update(environment())
