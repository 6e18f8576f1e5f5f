"""Tries in a few milliseconds what a body needs from the kernel (standard library only).

`unshare ... PYTHON -m lab.bodies.probe FOLDER`: ends with 0, or with the reason as the last line of stderr.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from lab.bodies import mounts


def main() -> None:
    """Make the mounts that a body makes, and write to the overlay."""
    folder = Path(sys.argv[1])
    place = Path("/mnt/instance")
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    mounts.tmpfs(Path("/mnt"), "1m")
    place.mkdir()
    mounts.bind(folder, place)
    mounts.read_only(Path("/"), recursive=True)
    for each in (Path("/mnt"), place):
        mounts.writable(each)
    lower, upper, work, merged = (place / name for name in ("lower", "upper", "work", "merged"))
    for each in (lower, upper, work, merged):
        each.mkdir()
    mounts.overlay(lower, upper, work, merged)
    (merged / "written").touch()
    mounts.mount("proc", Path("/proc"), "proc")


if __name__ == "__main__":
    main()
