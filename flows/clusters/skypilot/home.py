"""Whose SkyPilot a process talks to: the user's own, or one in a home of the project's (SPECSWEEP_SKY_HOME).

Import `sky` only after `enter()`: it reads its home, its configuration and the API server's address at import.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import yaml

HOME_VARIABLE = "SPECSWEEP_SKY_HOME"  # names the folder with .sky, .aws, .ssh, .slurm and .config
LONGEST_TMPDIR = 75  # characters: a socket's path may have 107, with `/pymp-12345678/listener-12345678` below it

GLOBAL_VARIABLE, PROJECT_VARIABLE = "SKYPILOT_GLOBAL_CONFIG", "SKYPILOT_PROJECT_CONFIG"
"""SkyPilot's variables for its two configurations. The second lies on top, and goes along with each request."""

OURS = "specsweep.yaml"  # name of our project configuration, beside the user's own in `.sky`

WITH_A_ROLE = ("aws", "gcp", "azure", "kubernetes", "ssh")
"""Clouds whose machines have a role of their own, with which they end themselves. So no file of the user's has to be
copied to any node. Machines of other clouds have nothing but the user's key to end themselves with, and get it."""


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
    """Set `environment()` here, and, unless the user's two say otherwise, that no node gets the user's own keys."""
    os.environ.update(environment())
    path = Path.home() / ".sky" / OURS
    if os.environ.get(PROJECT_VARIABLE) != str(path):
        theirs = _read(os.environ.get(PROJECT_VARIABLE) or ".sky.yaml")
        global_one = _read(os.environ.get(GLOBAL_VARIABLE) or "~/.sky/config.yaml")
        merged = dict(theirs)
        for cloud in WITH_A_ROLE:
            if not any("remote_identity" in (config.get(cloud) or {}) for config in (global_one, theirs)):
                merged[cloud] = {**(merged.get(cloud) or {}), "remote_identity": "NO_UPLOAD"}
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = path.with_suffix(f".{os.getpid()}")
        temporary.touch(mode=0o600)
        temporary.write_text(yaml.safe_dump(merged), encoding="utf-8")
        temporary.rename(path)
        os.environ[PROJECT_VARIABLE] = str(path)


def _read(path: str) -> dict[str, Any]:
    """A configuration of SkyPilot's; what is wrong with it SkyPilot itself says best."""
    file = Path(path).expanduser()
    config = yaml.safe_load(file.read_text(encoding="utf-8")) if file.is_file() else None
    return config if isinstance(config, dict) else {}
