"""The product's promise, whole: Prefect, SkyPilot, the real vLLM on two nodes, one of them reclaimed inside a step.

The same cells are measured on this machine, too, where nothing is lost. Both runs must give the same rows.
"""

from __future__ import annotations

import subprocess
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import polars as pl
import pytest
import yaml

from configs.checkout import ROOT
from flows.clusters.protocol import cluster_name
from flows.plans import make_plan
from flows.terminal.prefect_session import PrefectSession
from lab.cloud import Lab
from tests.busy_machine import PATIENCE_S
from tests.cloud.night import CANARY, SAME_WHEREVER
from tests.command_lines import start_command
from tests.engine.tiny_runs import finish
from tests.flows.test_prefect import SELDOM_S, api, prefect
from tests.tasks.test_cell import wait_until
from warehouse.dataset.snapshot import read_current
from warehouse.ledger.commits import Ledger
from warehouse.ledger.lease import Leases
from warehouse.ledger.placement import Placements
from warehouse.ledger.store import open_store
from warehouse.ledger.store.identity import store_id

pytestmark = [pytest.mark.cloud, pytest.mark.reclaimed, pytest.mark.engine, pytest.mark.slow(820)]

SAME_WHATEVER_THE_NODE = ["cell_key", *SAME_WHEREVER, "technique"]
"""Columns of the dataset that hold no clock and no place."""


class Rehearsal:
    def __init__(self, lab: Lab, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        for name, value in lab.env.items():
            if name.startswith("AWS_"):
                monkeypatch.setenv(name, value)
        self.lab, self.folder = lab, folder
        self.ar, self.mtp = (planned.cell.cell_key for planned in make_plan("rehearsal").cells)
        self.store = open_store(lab.store_url)
        self.engine_logs: dict[Path, str] = {}
        own = {"SPECSWEEP_STORE": lab.store_url, "SPECSWEEP_STATE": str(folder / "state"), "HF_TOKEN": CANARY}
        self.settings = dict(lab.env) | own
        self.calm_store, self.calm_state = folder / "calm-store", folder / "calm-state"

    def start_calm(self) -> subprocess.Popen[str]:
        """The sweep's cells on this machine, one after the other."""
        here = yaml.safe_load((ROOT / "configs/sweeps/rehearsal.yaml").read_text(encoding="utf-8"))
        del here["cloud"]
        sweep = self.folder / "calm.yaml"
        sweep.write_text(yaml.safe_dump(here | {"spot": False, "concurrency": 1}), encoding="utf-8")
        env = {"SPECSWEEP_STATE": str(self.calm_state)}
        return start_command("run", sweep, "--run-id", "calm", "--store", self.calm_store, env=env)

    def ledger(self, run_id: str) -> Ledger:
        return Ledger(self.store, run_id)

    def keep_engine_logs(self, over: threading.Event) -> None:
        """Engines count their requests in their logs, which go with their nodes: keep the last state of each."""
        while not over.wait(0.5):
            on_nodes = self.lab.paths.fleet.glob("i-*/home/ubuntu/.specsweep/cells/*/engine*.log")
            for path in (*on_nodes, *self.calm_state.glob("cells/*/engine*.log")):
                with suppress(FileNotFoundError):  # its node went this moment
                    self.engine_logs[path] = path.read_text(encoding="utf-8", errors="replace")

    def requests(self, run_id: str, key: str) -> list[int]:
        """Requests that the engines of a cell answered on each of its nodes, fewest first."""
        nodes = Counter[Path]()
        for path, text in self.engine_logs.items():
            if path.parent.name == f"{run_id}-{key}":
                nodes[path.parent] += text.count("POST /v1/")
        return sorted(nodes.values())

    def results(self) -> pl.DataFrame:
        """The disturbed run's rows of the largest snapshot."""
        frames = [
            pl.read_parquet(self.store.get(key) or b"")
            for key in self.store.list("snapshots")
            if key.endswith("results_consolidated.parquet")
        ]
        return max(frames, key=lambda each: each.height).filter(pl.col("run_id") == "disturbed")


@pytest.fixture(scope="module")
def rehearsal(session_lab: Lab, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rehearsal]:
    monkeypatch = pytest.MonkeyPatch()
    ours = Rehearsal(session_lab, tmp_path_factory.mktemp("rehearsal"), monkeypatch)
    over = threading.Event()
    keeper = threading.Thread(target=ours.keep_engine_logs, args=(over,))
    keeper.start()
    calm = ours.start_calm()
    try:
        with PrefectSession(ours.folder / "prefect", ours.settings) as session:
            session.start(lambda _: None)
            done = deploy(session)
            with ours.lab.writes_held(f"runs/disturbed/cells/{ours.ar}/steps/throughput/parts"):
                leases = Leases(ours.ledger("disturbed"), ours.ar)
                inside = lambda: (beat := leases.heartbeat()) is not None and beat.step == "throughput"  # noqa: E731
                wait_until(inside, "the AR cell is in its throughput step", PATIENCE_S, SELDOM_S)
                name = cluster_name(store_id(ours.store), "disturbed", ours.ar)
                ours.lab.preempt(next(i.cluster for i in ours.lab.instances() if i.cluster.startswith(name)))
            wait_until(done, "the disturbed run", PATIENCE_S, SELDOM_S)
            # a flow's variables, keys too, are in a file of the worker's until the flow's process has ended
            worker = ours.folder / "prefect" / "worker"
            wait_until(lambda: not any(worker.rglob("workspace.json")), "the worker removes its file of the flow")
            ours.prefect_files = [path for path in (ours.folder / "prefect").rglob("*") if path.is_file()]
            ours.leaks = [str(path) for path in ours.prefect_files if CANARY.encode() in path.read_bytes()]
        finish(calm, 1500)
        yield ours
    finally:
        calm.terminate()
        calm.wait(PATIENCE_S)
        over.set()
        keeper.join()
        monkeypatch.undo()


def deploy(session: PrefectSession) -> Callable[[], bool]:
    """`prefect deployment run`; whether that run is over."""
    said = prefect(session, "deployment", "run", "sweep/rehearsal", "--param", 'run_id="disturbed"')
    flow_run = said.split("UUID:")[1].split()[0]

    def done() -> bool:
        state = api(session, "GET", f"flow_runs/{flow_run}")["state"]
        assert state["type"] not in ("FAILED", "CRASHED", "CANCELLED"), state
        return bool(state["type"] == "COMPLETED")

    return done


def test_it_goes_on_in_another_zone(rehearsal: Rehearsal) -> None:
    stories = Placements(rehearsal.ledger("disturbed"), rehearsal.ar).stories()
    assert [story.end and story.end.outcome for story in stories] == ["preempted", "done"]
    assert stories[0].asked.offer.zone != stories[1].asked.offer.zone
    attempts = Leases(rehearsal.ledger("disturbed"), rehearsal.ar).attempts()
    assert [attempt.outcome for attempt in attempts] == ["lost", "completed"]


def test_the_dataset_is_that_of_a_calm_run(rehearsal: Rehearsal) -> None:
    frames = (rehearsal.results(), read_current(open_store(str(rehearsal.calm_store))))
    columns = SAME_WHATEVER_THE_NODE
    disturbed, calm = (each.select(columns).sort(columns, nulls_last=True) for each in frames)
    assert disturbed.height > 0
    assert disturbed.equals(calm), (disturbed, calm)


def test_no_committed_item_was_asked_again(rehearsal: Rehearsal) -> None:
    ledger = rehearsal.ledger("disturbed")
    smoke = ledger.read_commit(rehearsal.ar, "smoke")
    assert smoke is not None and smoke.attempt == 1
    smoke_items = sum(part.rows for part in smoke.parts if part.table == "eval_items")
    [calm] = rehearsal.requests("calm", rehearsal.ar)
    lost, second = rehearsal.requests("disturbed", rehearsal.ar)
    assert smoke_items > 0
    assert second <= calm - smoke_items, "the second engine was not asked what the first had answered"
    assert lost > smoke_items, "it was reclaimed inside a step"


def test_the_other_cell_had_one_attempt(rehearsal: Rehearsal) -> None:
    (attempt,) = Leases(rehearsal.ledger("disturbed"), rehearsal.mtp).attempts()
    assert attempt.outcome == "completed"


def test_no_instance_is_left(rehearsal: Rehearsal) -> None:
    assert [each for each in rehearsal.lab.instances() if each.alive] == []
    assert rehearsal.lab.body_processes() == []


def test_prefects_files_hold_no_secret(rehearsal: Rehearsal) -> None:
    assert any(path.suffix == ".db" for path in rehearsal.prefect_files), "its database is among them"
    assert rehearsal.leaks == []
