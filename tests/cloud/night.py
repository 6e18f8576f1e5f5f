"""A sweep on the pocket cloud as a user starts it: real SkyPilot, real nodes, the fake engine, blows from outside."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import polars as pl
import yaml

from configs.checkout import ROOT
from flows.clusters.skypilot.home import HOME_VARIABLE
from lab.cloud import Instance, Lab
from lab.errors import LabError
from lab.paths import INSIDE
from tests.busy_machine import PATIENCE_S
from tests.cloud.checks import server_log, wait_until
from tests.command_lines import SecretWatch, command_of, run_python
from tests.rented_run import RentedRun, copy_fake_engine, write_night
from tests.tasks.test_cell import processes_with
from warehouse.dataset.snapshot import read_current
from warehouse.ledger.clock import SYSTEM, seconds_between
from warehouse.ledger.store import open_store
from warehouse.ledger.store.identity import store_id

CANARY, STORE_CANARY = "canary-5f1d1c3e8a", "canary-of-the-store-0c7e"
"""Stand for the hub's token and a store's secret key; no argument, and no environment but the user's, may show them."""

PLACES = ({"infra": "aws/us-east-1"}, {"infra": "aws/us-west-2"})  # three zones of two regions

SAME_WHEREVER = (
    "model precision k engine gpu weights step condition mode context_tokens output_tokens concurrency repeats "
    "metric score n truncated blank extractor parity_equal parity_n first_divergence "
).split()
"""Columns of the dataset that hold no clock, no place, and not which of several equal techniques a cell has."""

EVAL_ITEMS, PARITY_PROMPTS, SMOKE_REQUESTS = 24, 3, 20
"""What `SUITE` asks besides its windows; smoke: ten questions that nobody misses, and its items with their warm-up."""

ON_THE_NODE = "/home/ubuntu/sky_workdir"


class Night(RentedRun):
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
        self.lab = lab
        self.unheard_s: dict[int, float] = {}
        """From the last heartbeat of a reclaimed node to its end, by cell: what it did then is in no bill."""
        self.watch = SecretWatch(CANARY, STORE_CANARY, of_the_user=HOME_VARIABLE)
        copy_fake_engine(lab.paths.shared)
        techniques = {}
        for number, each_s in enumerate([token_s] * cells if isinstance(token_s, float) else token_s):
            names = {"COUNT": "jsonl", "HOLD": "hold", "HURRY": "hurry"}
            files = {f"FAKE_ENGINE_{name}": f"{run_id}-t{number}.{ending}" for name, ending in names.items()}
            env = {name: str(INSIDE.shared / file) for name, file in files.items()}
            techniques[f"t{number}"] = env | {"FAKE_ENGINE_TOKEN_S": str(each_s)}
        cloud = f"{{task: {folder / 'task.yaml'}, wait_h: 0.2, on_demand_after: 3{budget}}}"
        head = f"spot: true\nvisits: {visits}\nconcurrency: {concurrency}\ncloud: {cloud}"
        write_night(folder, head, ["python3", str(INSIDE.shared / "fake_engine.py")], ON_THE_NODE, techniques)
        (folder / "task.yaml").write_text(_task(places), encoding="utf-8")
        os.environ |= {name: value for name, value in lab.env.items() if name.startswith("AWS_")}
        known_as = store_id(open_store(lab.store_url + store))  # to the flow, which has this endpoint
        os.environ["AWS_ENDPOINT_URL"] = lab.behind_url  # no weather keeps us from looking on
        super().__init__(folder, folder / "state", folder / "sweep.log", lab.store_url + store, run_id)
        self.store_id = known_as

    def counts(self, cell: int) -> Path:
        return self._of_engine(cell, "jsonl")

    def _of_engine(self, cell: int, ending: str) -> Path:
        return self.lab.paths.shared / f"{self.run_id}-t{cell}.{ending}"

    @property
    def settings(self) -> dict[str, str]:
        """The variables that its user sets."""
        return self.lab.env | {
            "PYTHONPATH": str(ROOT),
            "SPECSWEEP_STORE": self.store_url,
            "COLUMNS": "160",
            "SPECSWEEP_STATE": str(self.state),
            "HF_TOKEN": CANARY,
            "AWS_SECRET_ACCESS_KEY": STORE_CANARY,  # the lab's cloud asks for none
        }

    @property
    def env(self) -> dict[str, str]:
        return os.environ | self.settings

    def start(self) -> subprocess.Popen[bytes]:
        return _sweep_run(self.folder, self.run_id, self.env, self.log)

    def sweep(self, *arguments: str) -> str:
        """What any `sweep` command prints; it has to succeed."""
        done = run_python("-m", "flows.terminal", *arguments, env=self.env)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def published(self, table: str) -> pl.DataFrame:
        """The run's rows of the largest snapshot."""
        store = self.ledger.store
        keys = [key for key in store.list("snapshots") if f"{table}.parquet" in key]
        frames = [pl.read_parquet(store.get(key) or b"") for key in keys]
        return max(frames, key=lambda each: each.height).filter(pl.col("run_id") == self.run_id)

    def said(self) -> str:
        return f"{super().said()}\n--- SkyPilot\n{server_log(self.lab)}"

    def waits_for_ssh(self, cell: int) -> bool:
        """Whether SkyPilot has rented a machine for the cell and waits for it to boot."""
        logs = (path.read_text(errors="replace") for path in self.lab.paths.home.glob("sky_logs/*/provision.log"))
        return any(self.cluster(cell) in log and "Waiting for SSH" in log for log in logs)

    def living(self, cell: int) -> list[Instance]:
        return [each for each in self.lab.instances() if each.alive and each.cluster.startswith(self.cluster(cell))]

    def reclaim(self, cell: int) -> None:
        """Take the cell's node away; back when nothing of it runs any more. `unheard_s` has its seconds of silence.

        A node that is going down may be gone before the blow falls.
        """
        doomed = [self.lab.paths.fleet / each.instance_id for each in self.living(cell)]
        for body in doomed:
            try:
                self.lab.preempt(body.name)
            except LabError:
                if body.name in {each.instance_id for each in self.living(cell)}:
                    raise
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

    def hold_engine(self, cell: int) -> Path:
        """A file: while it exists the cell's engine does not get healthy."""
        path = self._of_engine(cell, "hold")
        path.touch()
        return path

    def hurry(self, cell: int) -> None:
        """Let the cell's engine take 2 ms a token from now on: what its slowness was for has been seen."""
        self._of_engine(cell, "hurry").touch()


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


class CalmRun:
    """The calm run that a bad night is held against: its suite on this machine, where nothing is lost or far away."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._log = folder, folder / "sweep.log"
        command = [sys.executable, str(ROOT / "tests" / "fake_engine.py")]
        write_night(folder, "spot: false\nvisits: single\nconcurrency: 1", command, str(ROOT), {"calm": {}})
        places = {"SPECSWEEP_STORE": str(folder / "store"), "SPECSWEEP_STATE": str(folder / "state")}
        self.process = _sweep_run(folder, "calm", os.environ | {"PYTHONPATH": str(ROOT)} | places, self._log)

    def rows(self) -> pl.DataFrame:
        self.process.wait(PATIENCE_S)
        assert self.process.returncode == 0, self._log.read_text(encoding="utf-8", errors="replace")
        return comparable(read_current(open_store(str(self._folder / "store"))))


def _sweep_run(folder: Path, run_id: str, env: Mapping[str, str], said: Path) -> subprocess.Popen[bytes]:
    """`sweep run`, in a session of its own."""
    argv = [sys.executable, "-m", "flows.terminal", "run", str(folder / "sweep.yaml"), "--run-id", run_id]
    with said.open("ab") as log:
        return subprocess.Popen(
            argv, cwd=ROOT, env=env, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
        )


def by_step(asked: list[str]) -> dict[str, set[str]]:
    """Step -> its prompts, of all that a cell which lost nothing asked of its engine, in order."""
    late = len(asked) - EVAL_ITEMS
    return {
        "smoke": {*asked[:SMOKE_REQUESTS]},
        "throughput": {*asked[SMOKE_REQUESTS : late - PARITY_PROMPTS]},
        "parity": {*asked[late - PARITY_PROMPTS : late]},
        "eval-tiny": {*asked[late:]},
    }


def comparable(frame: pl.DataFrame) -> pl.DataFrame:
    """The columns that any undisturbed run of the suite has equal, in one order."""
    return frame.select(SAME_WHEREVER).sort(SAME_WHEREVER, nulls_last=True)
