"""A sweep on the pocket cloud as a user starts it: real SkyPilot, real nodes, the fake engine, blows from outside."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import yaml

from configs.checkout import ROOT
from flows.clusters.skypilot.home import HOME_VARIABLE
from lab.cloud import Instance, Lab
from lab.paths import INSIDE
from tests.cloud.checks import wait_until
from tests.command_lines import command_of
from tests.fake_run import SUITE, write_sweep
from tests.rented_run import RentedRun
from tests.secret_watch import SecretWatch
from tests.tasks.test_cell import processes_with
from warehouse.ledger.clock import SYSTEM, seconds_between

CANARY, STORE_CANARY = "canary-5f1d1c3e8a", "canary-of-the-store-0c7e"
"""Stand for the hub's token and a store's secret key; no argument, and no environment but the user's, may show them."""

PLACES = ({"infra": "aws/us-east-1"}, {"infra": "aws/us-west-2"})
"""Three zones of two regions."""

ON_THE_NODE = "/home/ubuntu/sky_workdir"


class Night(RentedRun):
    """One run of one sweep of our own on a lab."""

    def __init__(
        self,
        lab: Lab,
        folder: Path,
        cells: int,
        *,
        token_s: float | Sequence[float] = 0.001,
        budget: str = "",
        visits: str = "single",
        places: Sequence[Mapping[str, str]] = PLACES,
        store: str = "",
        concurrency: int = 2,
    ) -> None:
        """Write the user's YAML: one technique per cell, so that each cell's engine counts in a file of its own.

        `token_s`: of all cells' engines, or of each cell's. `store`: put behind the lab's own, for another team.
        """
        run_id = f"night{int(time.time())}{store}"
        self.lab, self.folder = lab, folder
        self.unheard_s: dict[int, float] = {}
        """From the last heartbeat of a reclaimed node to its end, by cell: what it did then is in no bill."""
        self.log = folder / "sweep.log"
        self.watch = SecretWatch(CANARY, STORE_CANARY, of_the_user=HOME_VARIABLE)
        shutil.copy(ROOT / "tests" / "fake_engine.py", lab.paths.shared / "fake_engine.py")
        (lab.paths.shared / "tests").mkdir(exist_ok=True)
        shutil.copy(ROOT / "tests" / "fake_faults.py", lab.paths.shared / "tests")
        speeds = dict(enumerate([token_s] * cells if isinstance(token_s, float) else token_s))
        names = [f"t{number}" for number in range(cells)]
        files = {
            "suites/fake-suite.yaml": SUITE,
            "sweep.yaml": _sweep(names, folder / "task.yaml", budget, visits, concurrency),
            "task.yaml": _task(places),
            "engines/fake.yaml": _engine(),
        }
        files |= {
            f"techniques/{name}.yaml": _technique(name, run_id, speeds[number]) for number, name in enumerate(names)
        }
        write_sweep(folder, files)
        os.environ |= {name: value for name, value in lab.env.items() if name.startswith("AWS_")}
        os.environ["AWS_ENDPOINT_URL"] = lab.behind_url  # no weather keeps us from looking on
        super().__init__(folder / "sweep.yaml", lab.store_url + store, run_id)

    @property
    def env(self) -> dict[str, str]:
        own = {
            "PYTHONPATH": str(ROOT),
            "SPECSWEEP_STORE": self.store_url,
            "COLUMNS": "160",
            "SPECSWEEP_STATE": str(self.folder / "state"),
            "HF_TOKEN": CANARY,
            "AWS_SECRET_ACCESS_KEY": STORE_CANARY,  # the lab's cloud asks for none
        }
        return os.environ | self.lab.env | own

    def start(self) -> subprocess.Popen[bytes]:
        argv = [sys.executable, "-m", "flows.terminal", "run", str(self.folder / "sweep.yaml"), "--run-id", self.run_id]
        with self.log.open("ab") as log:
            return subprocess.Popen(
                argv, cwd=ROOT, env=self.env, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
            )

    def sweep(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        argv = [sys.executable, "-m", "flows.terminal", *arguments]
        return subprocess.run(argv, cwd=ROOT, env=self.env, capture_output=True, text=True)

    @property
    def flow_log(self) -> str:
        path = self.folder / "state" / "prefect" / "ephemeral" / "flow.log"
        return path.read_text(encoding="utf-8", errors="replace") if path.exists() else ""

    def waits_for_ssh(self, cell: int) -> bool:
        """Whether SkyPilot has rented a machine for the cell and waits for it to boot."""
        logs = (path.read_text(errors="replace") for path in self.lab.paths.home.glob("sky_logs/*/provision.log"))
        return any(self.cluster(cell) in log and "Waiting for SSH" in log for log in logs)

    def said(self) -> str:
        """Everything that was said, for a failing test."""
        own = self.log.read_text(encoding="utf-8", errors="replace") if self.log.exists() else ""
        return f"{own}\n--- flow\n{self.flow_log[-6000:]}"

    def living(self, cell: int) -> list[Instance]:
        return [each for each in self.lab.instances() if each.alive and each.cluster.startswith(self.cluster(cell))]

    def reclaim(self, cell: int) -> None:
        """Take the cell's node away; back when nothing of it runs any more. `unheard_s` has its seconds of silence."""
        doomed = [self.lab.paths.fleet / each.instance_id for each in self.living(cell)]
        for body in doomed:
            self.lab.preempt(body.name)
        wait_until(lambda: not any(body.exists() for body in doomed), "the reclaimed node is dead")
        beat = self.heartbeat(cell)
        if beat is not None:
            self.unheard_s[cell] = seconds_between(beat.at, SYSTEM.now_iso())

    def notice(self, cell: int) -> None:
        """Tell the cell's node that it will be taken back: in a minute, as its flow waits for it (EC2 says two)."""
        for each in self.living(cell):
            self.lab.notice(each.instance_id, in_s=60.0)

    def ends(self, cell: int) -> list[str]:
        """How the cell's placements ended, no_capacity left out."""
        return [outcome for outcome in super().ends(cell) if outcome != "no_capacity"]

    def parts(self, cell: int, step: str) -> list[str]:
        return self.ledger.store.list(f"{self.ledger.step_root(self.keys[cell], step)}/parts")

    def requests(self, cell: int) -> list[str]:
        """Every prompt that reached an engine of the cell, in order."""
        path = self.lab.paths.shared / f"{self.run_id}-t{cell}.jsonl"
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    def hold_engine(self, cell: int) -> Path:
        """A file: while it exists the cell's engine does not get healthy."""
        path = self.lab.paths.shared / f"{self.run_id}-t{cell}.hold"
        path.touch()
        return path

    def hurry(self, cell: int) -> None:
        """Let the cell's engine take 2 ms a token from now on: what its slowness was for has been seen."""
        (self.lab.paths.shared / f"{self.run_id}-t{cell}.hurry").touch()


def orchestrators(folder: Path) -> list[int]:
    """Processes of the command, its flow and its Prefect; not SkyPilot's API server, which serves others too."""
    ours = processes_with(str(folder / "state"))
    return [pid for pid in ours if "flows.terminal" in command_of(pid) or pid in processes_with("SPECSWEEP_SESSION=")]


def _task(places: Sequence[Mapping[str, str]]) -> str:
    """The shipped task, in some places only; a place that names its machine says all about it."""
    task = yaml.safe_load((ROOT / "sky" / "lab.yaml").read_text(encoding="utf-8"))
    task["resources"]["any_of"] = [dict(place) for place in places]
    if any("instance_type" in place for place in places):
        del task["resources"]["accelerators"]
    return yaml.safe_dump(task)


def _sweep(names: list[str], task: Path, budget: str, visits: str, concurrency: int) -> str:
    cells = [{"model": "fake-model", "precision": "bf16", "technique": name, "k": 4} for name in names]
    head = f"name: night\nengine: fake\ngpu: cpu\nsuite: fake-suite\nspot: true\nvisits: {visits}\n"
    cloud = f"cloud: {{task: {task}, wait_h: 0.2, on_demand_after: 3{budget}}}\n"
    head += f"concurrency: {concurrency}\n"
    return f"{head}serving: {{max_model_len: 2048}}\n{cloud}cells: {json.dumps(cells)}\n"


def _engine() -> str:
    command = ["python3", str(INSIDE.shared / "fake_engine.py")]
    env = {"PYTHONPATH": ON_THE_NODE}
    return yaml.safe_dump({"name": "fake", "command": command, "env": env, "start_timeout_s": 600})


def _technique(name: str, run_id: str, token_s: float) -> str:
    files = {"FAKE_ENGINE_COUNT": "jsonl", "FAKE_ENGINE_HOLD": "hold", "FAKE_ENGINE_HURRY": "hurry"}
    env = {variable: str(INSIDE.shared / f"{run_id}-{name}.{ending}") for variable, ending in files.items()}
    env["FAKE_ENGINE_TOKEN_S"] = str(token_s)
    return yaml.safe_dump({"name": name, "method": "ngram", "takes_k": True, "engine_env": env})
