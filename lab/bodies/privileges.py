"""How processes of the lab are started: as a user without privileges, seeing only what they need."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from pathlib import Path

from lab.bodies.cover import CoverSpec
from lab.places import CODE, MARK
from tasks.host.environment_spec import cache_folder, user_cache


def exposed_paths(baked: Path) -> list[Path]:
    """What bodies see of the host at its own place, read-only: environments, models, interpreters, our code."""
    folders = [cache_folder(), user_cache() / "family"]
    for folder in folders:
        folder.mkdir(parents=True, exist_ok=True)
    return sorted({*folders, baked, CODE, *_interpreters(baked)})


def _interpreters(baked: Path) -> set[Path]:
    """Prefixes of the interpreters that environments were made with; without the system's own, seen anyway."""
    homes = {Path(sys.base_prefix)}
    for configuration in (*cache_folder().glob("*/pyvenv.cfg"), *baked.glob("layer/*/pyvenv.cfg")):
        for line in configuration.read_text(encoding="utf-8").splitlines():
            name, _, value = line.partition("=")
            if name.strip() == "home":
                homes.add(Path(value.strip()).resolve().parent)
    return {home for home in homes if home.exists() and home not in (Path("/usr"), Path("/"))}


def unprivileged(command: Iterable[str | Path], read_write: Iterable[Path], read_only: Iterable[Path]) -> list[str]:
    """The command line that runs `command` without privileges.

    An ordinary user's command stays as it is; root's gets a mount namespace in which root's private folders are
    covered except for the paths given, and drops to the unprivileged user.
    """
    plain = [str(part) for part in command]
    if os.geteuid() != 0:
        return plain
    spec = CoverSpec(tuple(map(str, read_write)), tuple(map(str, read_only)), tuple(plain))
    return ["unshare", "--mount", "--propagation", "private", sys.executable, "-m", "lab.bodies.cover", spec.dump()]


def environment(root: Path) -> dict[str, str]:
    """Variables of the daemon; none of the caller's leak into the cloud."""
    return {
        MARK: str(root),
        "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
        "LANG": "C.UTF-8",
        "PYTHONPATH": str(CODE.parent),
        "PYTHONDONTWRITEBYTECODE": "1",
        "AWS_ACCESS_KEY_ID": "lab",
        "AWS_SECRET_ACCESS_KEY": "lab",
        "AWS_DEFAULT_REGION": "us-east-1",
    }
