"""A sweep of two cells on the machine with Slurm, as its user starts it: real SkyPilot, the fake engine."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import yaml

from configs.checkout import ROOT
from tests.cloud.night import CANARY
from tests.rented_run import RentedRun, copy_fake_engine, write_night
from tests.secret_watch import SecretWatch
from tests.slurm.layout import CLUSTER, GPUS, SPOT, URGENT
from tests.slurm.machine import Machine

TOKEN_S = 0.02
"""Seconds per token of the fake engine: long enough a step to strike in it."""

CELLS = 2
SWEEP = (sys.executable, "-m", "flows.terminal")


class SlurmNight(RentedRun):
    """The store is a folder of the shared home."""

    def __init__(self, machine: Machine) -> None:
        """Write the user's YAML: one technique per cell, so that each cell's engine counts in a file of its own."""
        self.machine, self.home = machine, machine.places.home
        self.watch = SecretWatch(CANARY, of_the_user="COLUMNS")
        copy_fake_engine(self.home)
        folder, token_s = self.home / "sweeps", {"FAKE_ENGINE_TOKEN_S": str(TOKEN_S)}
        techniques = {f"t{cell}": {"FAKE_ENGINE_COUNT": str(self.counts(cell))} | token_s for cell in range(CELLS)}
        head = f"spot: false\nconcurrency: 2\ncloud: {{task: {folder / 'task.yaml'}, wait_h: 0.2}}"
        write_night(folder, head, ["python3", str(self.home / "fake_engine.py")], str(ROOT), techniques)
        (folder / "task.yaml").write_text(_task(), encoding="utf-8")
        super().__init__(folder, self.home / "state", self.home / "sweep.log", str(self.home / "results"), "night")

    def counts(self, cell: int) -> Path:
        return self.home / f"t{cell}.jsonl"

    def start(self) -> subprocess.Popen[bytes]:
        argv = [*SWEEP, "run", str(self.folder / "sweep.yaml"), "--run-id", self.run_id]
        return self.machine.start(argv, self.log, **self._env)

    def sweep(self, *arguments: str) -> str:
        return self.machine.run(*SWEEP, *arguments, **self._env)

    def take_gpus(self) -> str:
        """An urgent job for all GPUs, which others have to leave; its number."""
        options = ("--parsable", f"--partition={URGENT}", f"--gres=gpu:H100:{GPUS}", "--mem=1G", "--output=/dev/null")
        return self.machine.run("sbatch", *options, "--job-name=urgent", "--wrap=sleep infinity")

    def jobs(self, *states: str) -> list[str]:
        """Names of the Slurm jobs of our clusters in these states; Slurm remembers ended ones for five minutes."""
        argv = ("squeue", "--noheader", f"--states={','.join(states)}", "--format=%j", f"--partition={SPOT}")
        return self.machine.run(*argv).split()

    def said(self) -> str:
        return f"{super().said()}\n{self.machine.logs()}"

    @property
    def _env(self) -> dict[str, str]:
        own = {"SPECSWEEP_STORE": self.store_url, "SPECSWEEP_STATE": str(self.state)}
        return own | {"COLUMNS": "160", "HF_TOKEN": CANARY}


def _task() -> str:
    """The shipped task, in the partition that can be preempted, an engine that needs no installing, and a secret."""
    task = yaml.safe_load((ROOT / "sky" / "slurm.yaml").read_text(encoding="utf-8"))
    task["resources"]["infra"] = f"slurm/{CLUSTER}/{SPOT}"
    task["envs"]["SPECSWEEP_VLLM"] = ""
    task["secrets"] = {"HF_TOKEN": None}
    return yaml.safe_dump(task)
