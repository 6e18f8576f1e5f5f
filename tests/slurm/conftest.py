"""One machine with Slurm for all tests of this folder; where it can't be made they are skipped, and say why."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest

from configs.checkout import ROOT
from lab.bake import bake_python
from tasks.host.environment_spec import cache_folder
from tests.cloud.checks import SHORT
from tests.slurm.machine import Machine

ASKED = "SPECSWEEP_SLURM"  # set by `make test-slurm`; without it the tests are skipped

COMMANDS = {
    "slurmctld": "slurmctld", "slurmd": "slurmd", "sbatch": "slurm-client", "munged": "munge", "rsync": "rsync",
    "sshd": "openssh-server", "ssh": "openssh-client", "ip": "iproute2", "unshare": "util-linux",
}  # fmt: skip
"""Command -> Debian package."""


def why_not() -> str | None:
    """Why not, in one line with the remedy; none: it can."""
    if not os.environ.get(ASKED):
        return "it was not asked for. Remedy: make test-slurm"
    if os.geteuid() != 0:
        return "its namespaces are made by root. Remedy: start it as root"
    path = f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"
    missing = [name for name in COMMANDS if shutil.which(name, path=path) is None]
    if missing:
        packages = " ".join(sorted({COMMANDS[name] for name in missing}))
        return f"this machine lacks {', '.join(missing)}. Remedy: bin/debian-packages {packages}"
    if bake_python() is None:
        return "SkyPilot's runtime needs Python 3.11 or older. Remedy: apt-get install python3.11"
    if Path("/tmp") in (*ROOT.parents, *cache_folder().parents):
        return f"it has a /tmp of its own, which hides {ROOT} or {cache_folder()}. Remedy: move them out of /tmp"
    return None


@pytest.fixture(scope="session")
def machine() -> Iterator[Machine]:
    if reason := why_not():
        pytest.skip(f"no Slurm here: {reason}")
    machine = Machine(SHORT / f"slurm{uuid4().hex[:8]}")
    try:
        machine.up()
        yield machine
    finally:
        machine.down()
