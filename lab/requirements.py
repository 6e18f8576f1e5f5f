"""Whether a lab can run on this machine, found out by trying."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from lab.bake import bake_python
from lab.leftovers import remove_tree
from lab.paths import CODE, FLEET_UID, NAMESPACES
from lab.startup import environment, unprivileged

COMMANDS = {
    "ssh": "openssh-client",
    "rsync": "rsync",
    "ip": "iproute2",
    "unshare": "util-linux",
    "setpriv": "util-linux",
}
"""Commands that a lab needs -> their Debian packages."""


def why_not(where: Path) -> str | None:
    """Why no lab can run in the existing folder `where`, in one line with the remedy; None if one can."""
    if sys.platform != "linux":
        return f"it needs Linux namespaces, and this is {sys.platform}"
    missing = [name for name in COMMANDS if shutil.which(name) is None]
    if missing:
        packages = " ".join(sorted({COMMANDS[name] for name in missing}))
        return f"this machine lacks {', '.join(missing)}. Remedy: bin/debian-packages {packages}"
    if bake_python() is None:
        return "ray 2.9.3 on the instances needs Python 3.11 or older. Remedy: apt-get install python3.11"
    return _namespaces_missing(where)


def _namespaces_missing(where: Path) -> str | None:
    folder = Path(tempfile.mkdtemp(prefix="probe-", dir=where))
    try:
        if os.geteuid() == 0:
            os.chown(folder, FLEET_UID, FLEET_UID)
        command: list[str | Path] = [*NAMESPACES, sys.executable, "-m", "lab.bodies.mounts", folder]
        prefixes = [Path(sys.prefix), Path(sys.base_prefix), CODE]
        tried = subprocess.run(
            unprivileged(command, [folder], prefixes),
            env=environment(folder),
            cwd="/",
            capture_output=True,
            text=True,
            check=False,
        )
    finally:
        remove_tree(folder)
    if tried.returncode == 0:
        return None
    reason = (tried.stderr.strip().splitlines() or [f"exit code {tried.returncode}"])[-1]
    return (
        f"an unprivileged user can't make namespaces with an overlay in {where}: {reason}. Remedy: a real file system "
        "there, and user namespaces (sysctl user.max_user_namespaces, kernel.unprivileged_userns_clone, "
        "kernel.apparmor_restrict_unprivileged_userns=0)"
    )


def main() -> None:
    """Print why no lab can run here, if so: the last line of `make test` where its tests were skipped."""
    reason = why_not(Path(tempfile.gettempdir()))
    if reason is not None:
        print(f"The tests on the pocket cloud were skipped: {reason}")


if __name__ == "__main__":
    main()
