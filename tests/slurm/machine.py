"""A machine with Slurm: login node and only compute node in one, in namespaces of its own, with one ordinary user."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

from configs.checkout import ROOT
from lab import leftovers
from lab.bake import baked
from lab.paths import FLEET_UID, MARK, LabPaths
from lab.startup import CATALOGS, exposed_paths
from tasks.host.environment_spec import cache_folder
from tasks.host.environments import ensure
from tests.cloud.checks import wait_until
from tests.command_lines import command_of
from tests.slurm.inside import PLAIN_USER
from tests.slurm.layout import CLUSTER, RUNTIME, USER, write_files

NAMESPACES = ("--mount", "--net", "--pid", "--uts", "--ipc")


class Machine:
    def __init__(self, root: Path) -> None:
        self.places = LabPaths(root)
        self._process: subprocess.Popen[bytes] | None = None

    def up(self) -> None:
        root, layer = self.places.root, baked(ensure("uv"), lambda line: None)
        root.mkdir(mode=0o755)
        write_files(self.places, layer, cache_folder())
        shutil.copytree(CATALOGS, self.places.home / ".sky" / "catalogs")
        # a copy: what SkyPilot changes in it for a job must not change the bake
        runtime = root / RUNTIME.relative_to("/")
        subprocess.run(["cp", "--archive", "--reflink=auto", layer / "layer" / "skypilot-runtime", runtime], check=True)
        subprocess.run(["chown", "--recursive", "--no-dereference", f"{FLEET_UID}:{FLEET_UID}", root], check=True)
        unshare = ["unshare", *NAMESPACES, "--propagation", "private", "--mount-proc", "--fork", "--kill-child"]
        with (root / "log" / "machine.log").open("ab") as log:
            seen = map(str, (root, *exposed_paths(layer), ROOT))
            argv = [*unshare, sys.executable, "-m", "tests.slurm.inside", *seen]
            env = self.env | {"PYTHONPATH": str(ROOT)}
            self._process = subprocess.Popen(argv, cwd=ROOT, env=env, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        wait_until(self._is_ready, "Slurm has an idle node and ssh lets its user in")

    def down(self) -> None:
        leftovers.kill(self.places.root)
        if self._process is not None:
            self._process.wait()
        leftovers.remove_tree(self.places.root)

    @property
    def env(self) -> dict[str, str]:
        home = self.places.home
        return {
            MARK: str(self.places.root),
            "HOME": str(home),
            "SPECSWEEP_SKY_HOME": str(home),
            "USER": USER,
            "LOGNAME": USER,
            "LANG": "C.UTF-8",
            "PATH": f"{Path(sys.executable).parent}:/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin",
            "SKYPILOT_DISABLE_USAGE_COLLECTION": "1",
            "SPT_NOENV": "1",
            "NO_COLOR": "1",
        }

    def start(self, argv: list[str], log: Path, **env: str) -> subprocess.Popen[bytes]:
        entered, nothing = self._entered(argv), subprocess.DEVNULL
        with log.open("ab") as out:
            return subprocess.Popen(entered, env=self.env | env, stdin=nothing, stdout=out, stderr=out)

    def run(self, *argv: str, **env: str) -> str:
        done = self._run(*argv, **env)
        assert done.returncode == 0, f"{argv}: {done.stderr or done.stdout}\n{self.logs()}"
        return done.stdout.strip()

    def processes(self) -> dict[int, str]:
        return {pid: command_of(pid) for pid in leftovers.body_processes(self.places.root)}

    def logs(self) -> str:
        files = sorted((self.places.root / "log").glob("*.log"))
        return "\n".join(f"--- {file.name}\n{file.read_text(errors='replace')[-1500:]}" for file in files)

    def _entered(self, argv: list[str]) -> list[str]:
        enter = ["nsenter", "--target", self._first_process, *NAMESPACES, *PLAIN_USER]
        return [*enter, "env", f"--chdir={ROOT}", *argv]

    def _run(self, *argv: str, **env: str) -> subprocess.CompletedProcess[str]:
        command = self._entered(list(argv))
        return subprocess.run(command, env=self.env | env, capture_output=True, text=True, stdin=subprocess.DEVNULL)

    @property
    def _first_process(self) -> str:
        """The process 1 of its namespaces, by its number on the host; empty before it is there."""
        assert self._process is not None and self._process.poll() is None, f"the machine ended\n{self.logs()}"
        pid = self._process.pid
        return Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="ascii").strip()

    def _is_ready(self) -> bool:
        if not self._first_process:
            return False
        config = str(self.places.home / ".slurm" / "config")
        ssh = ("ssh", "-F", config, "-o", "StrictHostKeyChecking=no", "-o", "LogLevel=ERROR", CLUSTER)
        said = self._run(*ssh, "sinfo", "--noheader", "--format=%T")
        return said.returncode == 0 and set(said.stdout.split()) == {"idle"}
