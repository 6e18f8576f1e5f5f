"""Hides root's private folders from the lab, then becomes an unprivileged user (standard library only).

Runs as root in a mount namespace of its own: `unshare --mount --propagation private PYTHON -m lab.bodies.cover SPEC`.
A path below a folder that only root may enter is bound again in its own place, on a tmpfs that covers that folder.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from lab.bodies import mounts
from lab.paths import FLEET_UID

STAGE = Path("/mnt")  # folder under which the paths wait while their ancestors are covered


class CoverSpec(NamedTuple):
    """Which paths stay visible, and the command that is started then."""

    read_write: tuple[str, ...]
    read_only: tuple[str, ...]
    command: tuple[str, ...]


def private_ancestor(path: Path) -> Path | None:
    """The topmost folder above `path` that other users may not enter; None if there is none."""
    return next((folder for folder in [*path.parents][::-1] if not folder.stat().st_mode & 0o001), None)


def cover(read_write: Iterable[Path], read_only: Iterable[Path]) -> None:
    """Cover every private ancestor of the paths, and bring the paths back."""
    writable = set(read_write)
    hidden = {path: folder for path in sorted({*writable, *read_only}) if (folder := private_ancestor(path))}
    if not hidden:
        return
    mounts.tmpfs(STAGE, "1m")
    staged = {path: STAGE / str(number) for number, path in enumerate(hidden)}
    for path, place in staged.items():
        place.mkdir()
        mounts.bind(path, place)
    for folder in sorted(set(hidden.values())):
        mounts.tmpfs(folder, "1m")
    for path, place in staged.items():
        path.mkdir(parents=True, exist_ok=True)
        mounts.bind(place, path)
        if path not in writable:
            mounts.read_only(path)
    mounts.detach(STAGE)


def main() -> None:
    """Cover the private folders, drop root's privileges, and become the command."""
    os.umask(0o022)
    spec = CoverSpec(**{name: tuple(value) for name, value in json.loads(sys.argv[1]).items()})
    cover(map(Path, spec.read_write), map(Path, spec.read_only))
    drop = ("setpriv", f"--reuid={FLEET_UID}", f"--regid={FLEET_UID}", "--clear-groups", "--inh-caps=-all")
    os.chdir("/")
    os.execvp(drop[0], [*drop, *spec.command])


if __name__ == "__main__":
    main()
