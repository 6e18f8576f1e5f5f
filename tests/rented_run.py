"""A run of the fake engine on rented machines: its files, what its store tells of it, waiting for what it does."""

from __future__ import annotations

import json
import shutil
import subprocess
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Protocol

from configs.checkout import ROOT
from flows.clusters.protocol import cluster_name
from flows.plans import make_plan
from tests.busy_machine import PATIENCE_S
from tests.fake_run import SUITE, prompts_in, write_sweep
from warehouse.ledger.commits import Ledger
from warehouse.ledger.lease import Attempt, Heartbeat, Leases
from warehouse.ledger.placement import Placements, PlacementStory
from warehouse.ledger.store import open_store
from warehouse.ledger.store.identity import store_id


class Running(Protocol):
    """Whatever runs the flow: a command's process, or a deployment's flow run."""

    def poll(self) -> int | None: ...
    def wait(self, timeout: float) -> int: ...


class RentedRun:
    """One run of the sweep in a folder; who starts it has `state` in `state`, and what is said in `log`."""

    def __init__(self, folder: Path, state: Path, log: Path, store_url: str, run_id: str) -> None:
        self.folder, self.state, self.log, self.store_url, self.run_id = folder, state, log, store_url, run_id
        self.flow_log_path = state / "prefect" / "ephemeral" / "flow.log"
        self.ledger = Ledger(open_store(store_url), run_id)
        self.store_id = store_id(self.ledger.store)
        self.planned = make_plan(str(folder / "sweep.yaml")).cells
        self.keys = [planned.cell.cell_key for planned in self.planned]

    def counts(self, cell: int) -> Path:
        """The file in which the cell's engines count their requests."""
        raise NotImplementedError

    @property
    def flow_log(self) -> str:
        path = self.flow_log_path
        return path.read_text(encoding="utf-8", errors="replace") if path.exists() else ""

    def said(self) -> str:
        """Everything that was said, for a failing test."""
        own = self.log.read_text(encoding="utf-8", errors="replace") if self.log.exists() else ""
        return f"{own[-8000:]}\n--- flow\n{self.flow_log[-8000:]}"

    def requests(self, cell: int) -> list[str]:
        """Every prompt that reached an engine of the cell, in order."""
        return prompts_in(self.counts(cell))

    def cluster(self, cell: int) -> str:
        return cluster_name(self.store_id, self.run_id, self.keys[cell])

    def heartbeat(self, cell: int) -> Heartbeat | None:
        return Leases(self.ledger, self.keys[cell]).heartbeat()

    def is_in(self, cell: int, step: str) -> bool:
        beat = self.heartbeat(cell)
        return beat is not None and beat.step == step

    def attempts(self, cell: int) -> list[Attempt]:
        return Leases(self.ledger, self.keys[cell]).attempts()

    def stories(self, cell: int) -> list[PlacementStory]:
        return Placements(self.ledger, self.keys[cell]).stories()

    def ends(self, cell: int) -> list[str]:
        return [story.end.outcome if story.end else "open" for story in self.stories(cell)]

    def is_measured(self, cell: int) -> bool:
        names = (each.name for each in self.planned[cell].measurements)
        return all(self.ledger.read_commit(self.keys[cell], name) is not None for name in names)

    def wait(self, process: Running | None, true: Callable[[], object], what: str, every_s: float = 1.5) -> None:
        """Ask until it is so; fails when the sweep ends first, if it is a process."""
        deadline = time.monotonic() + PATIENCE_S
        while not true():
            assert process is None or process.poll() is None, f"the sweep ended before: {what}\n{self.said()}"
            assert time.monotonic() < deadline, f"not within {PATIENCE_S:.0f} s: {what}\n{self.said()}"
            time.sleep(every_s)  # each look asks the store for dozens of objects

    def ends_well(self, process: Running) -> None:
        assert process.wait(PATIENCE_S) == 0, self.said()


def end(*processes: subprocess.Popen[bytes]) -> None:
    """Those that still run, as their user would."""
    for process in processes:
        if process.poll() is None:
            process.terminate()
            process.wait(PATIENCE_S)


def write_night(
    folder: Path, head: str, command: list[str], python_path: str, techniques: Mapping[str, Mapping[str, str]]
) -> None:
    """A user's sweep with a technique for each cell, whose variables its engine gets; `head`: more of its settings."""
    cells = [{"model": "fake-model", "precision": "bf16", "technique": name, "k": 4} for name in techniques]
    sweep = f"name: night\nengine: fake\ngpu: cpu\nsuite: fake-suite\nserving: {{max_model_len: 2048}}\n{head}\n"
    engine = {"name": "fake", "command": command, "env": {"PYTHONPATH": python_path}, "start_timeout_s": 600}
    files = {"sweep.yaml": f"{sweep}cells: {json.dumps(cells)}\n", "suites/fake-suite.yaml": SUITE}
    files["engines/fake.yaml"] = json.dumps(engine)
    for name, env in techniques.items():
        technique = {"name": name, "method": "ngram", "takes_k": True, "engine_env": env}
        files[f"techniques/{name}.yaml"] = json.dumps(technique)
    write_sweep(folder, files)


def copy_fake_engine(folder: Path) -> None:
    """`fake_engine.py`, with what it imports, to where a node sees it."""
    shutil.copy(ROOT / "tests" / "fake_engine.py", folder)
    (folder / "tests").mkdir(exist_ok=True)
    shutil.copy(ROOT / "tests" / "fake_faults.py", folder / "tests")
