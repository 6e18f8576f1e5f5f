"""Two cells on Slurm, and an urgent job that takes their GPUs in the middle of a step: both get measured.

Real SkyPilot, the fake engine, started as the machine's user starts it. Run on the machine as a program, this file
launches a cluster without a node runner, of which nobody hears, and asks only SkyPilot. It prints `up`, and when the
cluster has ended how `SkyCluster.look` says it has, as one JSON document; then it launches and takes down another of
that name, as a flow would that goes on.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml

from configs.checkout import ROOT
from flows.clusters.protocol import CellJob, cluster_name
from flows.clusters.skypilot import api as sky_api
from flows.clusters.skypilot.api import offers
from flows.clusters.skypilot.cluster import SkyCluster
from flows.clusters.skypilot.launch_watch import LaunchBounds
from flows.clusters.skypilot.task_file import Rental, load_task, sky_task, task_for
from tests.busy_machine import PATIENCE_S
from tests.cloud.checks import wait_until
from tests.cloud.night import CANARY
from tests.command_lines import SecretWatch
from tests.rented_run import RentedRun, copy_fake_engine, write_night
from tests.slurm.layout import CLUSTER, GPUS, SPOT, URGENT
from tests.slurm.machine import Machine

JOB = CellJob("/nowhere", "unheard", "0" * 16)
NAME = cluster_name("nowhere", JOB.run_id, JOB.cell_key)
TOKEN_S = 0.02  # seconds per token of the fake engine: long enough a step to strike in it
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


pytestmark = pytest.mark.slurm

BOTH = range(CELLS)


@pytest.fixture(scope="module")
def survived(machine: Machine) -> SlurmNight:
    """The night, over. The urgent job leaves once a cell waits for it in Slurm's queue."""
    night = SlurmNight(machine)
    process = night.start()
    wait = partial(night.wait, process)
    with night.watch.watching():
        wait(lambda: all(night.is_in(cell, "throughput") for cell in BOTH), "both cells are in their throughput step")
        assert len(night.jobs("RUNNING")) == CELLS
        urgent = night.take_gpus()
        wait(lambda: all(night.ends(cell)[:1] == ["preempted"] for cell in BOTH), "both cells are preempted")
        wait(lambda: night.jobs("PENDING"), "a cell waits in the queue, behind the urgent job")
        night.machine.run("scancel", urgent)
        night.ends_well(process)
    return night


def test_no_process_shows_a_secret_and_the_engine_finds_it_in_a_file(survived: SlurmNight) -> None:
    assert survived.watch.leaks == set() and survived.watch.token_files == {(0o600, CANARY)}


def test_slurm_itself_preempted_both_jobs(survived: SlurmNight) -> None:
    jobs = survived.jobs("PREEMPTED")
    assert sorted(job.rpartition("-")[0] for job in jobs) == sorted(survived.cluster(cell) for cell in BOTH)


@pytest.mark.parametrize("cell", BOTH)
def test_the_flow_saw_it_and_went_on_with_another_job(survived: SlurmNight, cell: int) -> None:
    assert survived.ends(cell) == ["preempted", "done"]
    first, second = survived.attempts(cell)
    assert first.outcome in ("stopped", "lost"), "Slurm gives the runner time (KillWait) to close its attempt itself"
    assert second.outcome == "completed"
    assert {story.asked.offer.where for story in survived.stories(cell)} == {"slurm/spot on-demand"}


@pytest.mark.parametrize("cell", BOTH)
def test_every_step_is_committed_once_and_what_was_done_is_not_done_again(survived: SlurmNight, cell: int) -> None:
    assert survived.is_measured(cell)
    commits = {step: survived.ledger.read_commit(survived.keys[cell], step) for step in ("smoke", "throughput")}
    assert {step: commit and commit.attempt for step, commit in commits.items()} == {"smoke": 1, "throughput": 2}
    asked = survived.requests(cell)
    assert len(asked) - len(set(asked)) < len(set(asked)) / 4


def test_the_report_has_both_attempts_without_a_price(survived: SlurmNight) -> None:
    assert survived.sweep("report", "--json")
    assert [attempt.price_usd_h for cell in BOTH for attempt in survived.attempts(cell)] == [None] * 4


def test_a_node_that_nobody_hears_of_is_preempted_by_skypilots_word(survived: SlurmNight) -> None:
    machine, task = survived.machine, str(survived.folder / "task.yaml")
    process = machine.start([sys.executable, "-m", "tests.slurm.test_preempted", task], survived.log)
    survived.wait(process, lambda: "up" in _lines(survived.log), "the cluster is up")
    urgent = survived.take_gpus()
    survived.wait(process, lambda: _endings(survived.log), "SkyPilot says that it is gone")
    machine.run("scancel", urgent)
    (ending,) = _endings(survived.log)
    assert (ending["code"], ending["how"]) == (None, "preempted"), ending
    assert ending["detail"].startswith(f"{NAME} does not exist any more")
    assert process.wait(PATIENCE_S) == 0, survived.said()


def _endings(path: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in _lines(path) if line.startswith('{"code":')]


def _lines(path: Path) -> list[str]:
    return path.read_text(encoding="utf-8", errors="replace").splitlines()


def test_nothing_is_left_on_the_machine(survived: SlurmNight) -> None:
    machine = survived.machine
    wait_until(lambda: machine.run("squeue", "--noheader") == "", "no job is left, and none is still completing")
    assert "No existing clusters" in machine.run("sky", "status", "--refresh")
    names = [NAME, *(survived.cluster(cell) for cell in BOTH)]
    assert not [line for line in machine.processes().values() if "tasks.cell" in line or "fake_engine" in line]
    assert not [line for line in machine.processes().values() if any(name in line for name in names)]
    assert not [*(machine.places.home / ".sky_clusters").iterdir()]


def test_a_machine_that_is_down_leaves_nothing_behind(machine: Machine, survived: SlurmNight) -> None:
    assert machine.processes()
    machine.down()
    assert not machine.processes() and not machine.places.root.exists()
    names = {NAME, *(survived.cluster(cell) for cell in BOTH)}
    assert not [path for path in Path("/tmp").iterdir() if path.name.rpartition("-")[0] in names]


def main() -> None:
    file = load_task(sys.argv[1])
    file = file._replace(config=file.config | {"setup": "true", "run": "sleep infinity"})
    offer = offers(sky_task(file))[0]

    @contextmanager
    def task_of(job: CellJob) -> Iterator[Any]:
        yield task_for(file, Rental(job, "nowhere", offer, None, time.time() + 3600, None, None), {})

    bounds = LaunchBounds(1.0, lambda: None, lambda: True)
    cluster = SkyCluster(NAME, task_of, offer, Path.home() / "unheard" / "launch.log", lambda: False, bounds)
    cluster.launch(JOB)
    (rented,) = sky_api.rented([NAME])
    print("up", flush=True)
    while (ending := cluster.look(None)) is None:
        time.sleep(1)
    cluster.down()
    print(json.dumps(ending._asdict()), flush=True)
    # SkyPilot's clean-up of a preempted job may be cut short; what it leaves has to go with the next job of its name
    left = Path.home() / ".sky_clusters" / str(rented.name_on_cloud) / ".sky" / "locks" / ".job_1.lock"
    left.parent.mkdir(parents=True, exist_ok=True)
    left.touch()
    cluster.launch(JOB)
    cluster.down()


if __name__ == "__main__":
    main()
