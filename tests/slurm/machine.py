"""A machine with Slurm: login node and only compute node in one, in namespaces of its own, with one ordinary user."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

from lab import leftovers
from lab.bake import baked
from lab.home import CATALOGS
from lab.places import MARK, Places
from lab.start import exposed_paths
from tasks.environment_spec import ROOT, cache_folder
from tasks.environments import ensure
from tests.cloud.checks import wait_until
from tests.slurm.inside import PLAIN_USER, InsideSpec
from tests.slurm.layout import CLUSTER, GPUS, RUNTIME, URGENT, USER, write_files

NAMESPACES = ("--mount", "--net", "--pid", "--uts", "--ipc")


class Machine:
    """One machine in one folder; as root of the host, everything on it runs as its user."""

    def __init__(self, root: Path) -> None:
        """Nothing starts yet; `root` does not exist, and its path is short (sockets lie below it)."""
        self.places = Places(root)
        self._process: subprocess.Popen[bytes] | None = None

    def up(self) -> None:
        """Start it; afterwards Slurm has an idle node, and ssh lets its user in."""
        layer = baked(ensure("lab"), lambda line: None)
        self.places.root.mkdir(mode=0o755)
        write_files(self.places, layer, cache_folder())
        shutil.copytree(CATALOGS, self.places.home / ".sky" / "catalogs")
        runtime = self.places.root / str(RUNTIME).lstrip("/")
        # a copy: what a job's SkyPilot installs over it must not change the bake
        subprocess.run(["cp", "--archive", "--reflink=auto", layer / "layer" / RUNTIME_NAME, runtime], check=True)
        _give_away(self.places.root)
        spec = InsideSpec(str(self.places.root), tuple(map(str, (*exposed_paths(layer), ROOT))))
        command = ["unshare", *NAMESPACES, "--propagation", "private", "--mount-proc", "--fork", "--kill-child"]
        with (self.places.root / "machine.log").open("ab") as log:
            self._process = subprocess.Popen(
                [*command, sys.executable, "-m", "tests.slurm.inside", spec.dump()], cwd=ROOT, stdin=subprocess.DEVNULL,
                stdout=log, stderr=log, env=self._env | {"PYTHONPATH": str(ROOT)}, start_new_session=True,
            )  # fmt: skip
        wait_until(self._is_ready, f"Slurm has an idle node (see {self.places.root}/log)")

    def down(self) -> None:
        """Kill everything on it, and remove its folder."""
        leftovers.kill(self.places.root)
        if self._process is not None:
            self._process.wait()
        leftovers.remove_tree(self.places.root)
