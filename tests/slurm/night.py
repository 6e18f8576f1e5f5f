"""A sweep of two cells on the machine with Slurm, as its user starts it: real SkyPilot, the fake engine."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys

import yaml

from tests.cloud.night import CANARY
from tests.fake_run import ROOT, SUITE, write_sweep
from tests.rented_run import RentedRun
from tests.secret_watch import SecretWatch
from tests.slurm.layout import CLUSTER, GPUS, SPOT, URGENT
from tests.slurm.machine import Machine

TOKEN_S = 0.02
"""Seconds per token of the fake engine: long enough a step to strike in it."""

CELLS = 2


class SlurmNight(RentedRun):
    """The store is a folder of the shared home."""

    def __init__(self, machine: Machine) -> None:
        """Write the user's YAML: one technique per cell, so that each cell's engine counts in a file of its own."""
        self.machine, self.home = machine, machine.places.home
        self.folder = self.home / "sweeps"
        self.log = self.home / "sweep.log"
        self.watch = SecretWatch(CANARY, of_the_user="COLUMNS")
        shutil.copy(ROOT / "tests" / "fake_engine.py", self.home)
        (self.home / "tests").mkdir(exist_ok=True)
        shutil.copy(ROOT / "tests" / "fake_faults.py", self.home / "tests")
        names = [f"t{number}" for number in range(CELLS)]
        files = {"suites/fake-suite.yaml": SUITE, "sweep.yaml": self._sweep(names)}
        files |= {"task.yaml": _task(), "engines/fake.yaml": self._engine()}
        files |= {f"techniques/{name}.yaml": self._technique(name) for name in names}
        write_sweep(self.folder, files)
        super().__init__(self.folder / "sweep.yaml", str(self.home / "results"), "night")

    def start(self) -> subprocess.Popen[bytes]:
        argv = self._argv("run", str(self.folder / "sweep.yaml"), "--run-id", self.run_id)
        return self.machine.start(argv, self.log, **self._env)

    def sweep(self, *arguments: str) -> str:
        return self.machine.run(*self._argv(*arguments), **self._env)

    def take_gpus(self) -> str:
        """An urgent job for all GPUs, which others have to leave; its number."""
        options = ("--parsable", f"--partition={URGENT}", f"--gres=gpu:H100:{GPUS}", "--mem=1G", "--output=/dev/null")
        return self.machine.run("sbatch", *options, "--job-name=urgent", "--wrap=sleep infinity")

    def jobs(self, *states: str) -> list[str]:
        """Names of the Slurm jobs of our clusters in these states; Slurm remembers ended ones for five minutes."""
        argv = ("squeue", "--noheader", f"--states={','.join(states)}", "--format=%j", f"--partition={SPOT}")
        return self.machine.run(*argv).split()

    def said(self) -> str:
        """Everything that was said, for a failing test."""
        flow = self.home / "state" / "prefect" / "ephemeral" / "flow.log"
        texts = [path.read_text(errors="replace")[-8000:] for path in (self.log, flow) if path.exists()]
        return "\n--- flow\n".join([*texts, self.machine.logs()])

    def requests(self, cell: int) -> list[str]:
        """Every prompt that reached an engine of the cell, in order."""
        path = self.home / f"t{cell}.jsonl"
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    @property
    def _env(self) -> dict[str, str]:
        state = str(self.home / "state")
        return {"SPECSWEEP_STORE": self.store_url, "SPECSWEEP_STATE": state, "COLUMNS": "160", "HF_TOKEN": CANARY}

    def _argv(self, *arguments: str) -> list[str]:
        return [sys.executable, "-m", "flows.terminal", *arguments]

    def _sweep(self, names: list[str]) -> str:
        cells = [{"model": "fake-model", "precision": "bf16", "technique": name, "k": 4} for name in names]
        head = "name: night\nengine: fake\ngpu: cpu\nsuite: fake-suite\nspot: false\nconcurrency: 2\n"
        cloud = f"cloud: {{task: {self.folder / 'task.yaml'}, wait_h: 0.2}}\n"
        return f"{head}serving: {{max_model_len: 2048}}\n{cloud}cells: {json.dumps(cells)}\n"

    def _engine(self) -> str:
        command = ["python3", str(self.home / "fake_engine.py")]
        env = {"PYTHONPATH": str(ROOT), "FAKE_ENGINE_TOKEN_S": str(TOKEN_S)}
        return yaml.safe_dump({"name": "fake", "command": command, "env": env, "start_timeout_s": 120})

    def _technique(self, name: str) -> str:
        env = {"FAKE_ENGINE_COUNT": str(self.home / f"{name}.jsonl")}
        return yaml.safe_dump({"name": name, "method": "ngram", "takes_k": True, "engine_env": env})


def _task() -> str:
    """The shipped task, in the partition that can be preempted, an engine that needs no installing, and a secret."""
    task = yaml.safe_load((ROOT / "sky" / "slurm.yaml").read_text(encoding="utf-8"))
    task["resources"]["infra"] = f"slurm/{CLUSTER}/{SPOT}"
    task["envs"]["SPECSWEEP_VLLM"] = ""
    task["secrets"] = {"HF_TOKEN": None}
    return yaml.safe_dump(task)
