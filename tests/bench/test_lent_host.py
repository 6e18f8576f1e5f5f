"""A lease from start to end: the scripts that carry the project to a GPU host, with a fake engine on it."""

import os
import signal
import subprocess
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest

from configs.checkout import ROOT
from tests.busy_machine import PATIENCE_S
from tests.command_lines import command_of
from tests.fake_run import FakeRun
from tests.tasks.test_cell import processes_with, wait_until
from warehouse.dataset.snapshot import publish, read_current
from warehouse.ledger.commits import Ledger
from warehouse.ledger.lease import Leases
from warehouse.ledger.runs import run_ids
from warehouse.ledger.store import open_store
from warehouse.report.page import write_report

SCRIPTS = ROOT / "bench" / "h200"

SWEEP = """\
name: mine
engine: vllm-shapes
gpu: h200
suite: quick
visits: bracketed
serving: {max_model_len: 2048}
cells:
  - model: gemma-4-31b-shape
    precision: fp8
    technique: mtp
    k: 2
    draft: {shape: gemma-4-31b-assistant}
    acceptance: {replay: mtp-gb10-31b}
  - {model: gemma-4-31b-shape, precision: fp8, technique: ar}
"""

SUITE = """\
name: quick
steps:
  - {step: smoke, items: 2}
  - step: throughput
    prompts: prose
    conditions:
      - {name: short c=1, context_tokens: 128, output_tokens: 64, repeats: 2, stream_requests: 0}
"""

ENGINE = f"""\
import runpy, sys
if "--version" in sys.argv:
    print("0.25.1, a fake")
    sys.exit()
sys.path.insert(0, {str(ROOT)!r})
runpy.run_path({str(ROOT / "tests" / "fake_engine.py")!r}, run_name="__main__")
"""
"""What stands at vLLM's command line: the fake engine."""

DRIVER = """\
#!/bin/sh
case $* in
*index*) echo "0, GPU-1, NVIDIA H200, 580.1, 143771, 100, 1980" ;;
*) echo "NVIDIA H200, 580.1, 143771 MiB" ;;
esac
"""

Run = Callable[..., str]


@pytest.fixture
def carried(tmp_path: Path) -> Path:
    """What `bundle.sh` makes, in two parts, with the fake engine for vLLM."""
    package = tmp_path / "engine" / "vllm" / "entrypoints" / "cli"
    package.mkdir(parents=True)
    (package / "main.py").write_text(ENGINE)
    folder = tmp_path / "carried"
    folder.mkdir()
    with tarfile.open(folder / "node.tar.xz", "w:xz"):
        pass
    with tarfile.open(tmp_path / "engine.tar.xz", "w:xz") as tar:
        tar.add(tmp_path / "engine", ".")
    whole = (tmp_path / "engine.tar.xz").read_bytes()
    (folder / "engine.part.1").write_bytes(whole[:100])
    (folder / "engine.part.2").write_bytes(whole[100:])
    return folder


@pytest.fixture
def run(tmp_path: Path, node_python: Path) -> Run:
    driver = tmp_path / "bin" / "nvidia-smi"
    driver.parent.mkdir()
    driver.write_text(DRIVER)
    driver.chmod(0o755)
    (tmp_path / "out").mkdir()
    env = os.environ | {
        "PATH": f"{driver.parent}:{node_python.parent}:{os.environ['PATH']}",
        "GPU_ROOT": str(tmp_path / "host"),
        "OUT": str(tmp_path / "out"),
        "FAKE_ENGINE": "noise",
        "FAKE_ENGINE_TOKEN_S": "0.01",  # faster than its memory no 31B can be: that guard is on
    }

    def call(script: str, *arguments: str, **more: str) -> str:
        argv = ["bash", str(SCRIPTS / script), *arguments]
        done = subprocess.run(
            argv, cwd=ROOT, env=env | more, text=True, capture_output=True, timeout=PATIENCE_S, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    return call


def pack(run: Run, folder: Path, text: str = SWEEP, **more: str) -> str:
    """Pack a sweep of one's own, with its suite beside it, on the store `here`; what was said."""
    (folder / "suites").mkdir(exist_ok=True)
    (folder / "suites" / "quick.yaml").write_text(SUITE)
    (folder / "mine.yaml").write_text(text)
    return run("pack.sh", str(folder), str(folder / "here"), str(folder / "mine.yaml"), **more)


def unpack(run: Run, carried: Path) -> str:
    run("keep.sh", str(carried), str(carried.parent / "store"))
    return run("unpack.sh")


@pytest.mark.slow(53)
def test_a_lease_measures_brings_the_store_back_and_the_next_goes_on(tmp_path: Path, carried: Path, run: Run) -> None:
    here = tmp_path / "here"
    assert "acceptance=replayed:mtp-gb10-31b" in pack(run, tmp_path)
    assert "vLLM answers" in unpack(run, carried)
    assert "is for the next lease" in run("work.sh", "60", LEASE_S="900"), "a bracket is not begun to be cut"
    said = run("work.sh", "240", "mtp")
    assert "the workers have ended" in said and "ended with 0" in said
    assert " ar " not in said.split("3 engine starts")[1]
    run("back.sh", str(tmp_path / "out" / "store.tar.gz"), str(here))
    store = open_store(str(here))
    [run_id] = run_ids(store)
    ledger = Ledger(store, run_id)
    mtp, ar = (planned.cell.cell_key for planned in ledger.plan().cells)
    measured = ("throughput@control-1", "smoke", "throughput", "throughput@control-2")
    commits = {name: ledger.read_commit(mtp, name) for name in measured}
    # windows of a second, beside whatever else this machine does: the client may say that it waited
    noisy = {"client_starved", "unsteady"}
    assert all(commit is not None and set(commit.reasons) <= noisy for commit in commits.values()), commits
    assert [attempt.outcome for attempt in Leases(ledger, mtp).attempts()] == ["completed"]
    assert Leases(ledger, ar).attempts() == []
    assert list((tmp_path / "here-logs").glob(f"node-{run_id}-{mtp}.log"))
    assert "3 engine starts" not in run("work.sh", "60", "mtp").split("done")[-2], "nothing is left of it"

    publish(store)
    assert set(read_current(store)["model"]) == set(read_current(store, "visits")["model"]) == {"gemma-4-31b-shape"}


@pytest.mark.slow(22)
def test_a_lease_measures_the_runs_packed_for_it_and_no_earlier_ones(tmp_path: Path, carried: Path, run: Run) -> None:
    for k in (2, 4):
        pack(run, tmp_path, SWEEP.replace("k: 2", f"k: {k}"))
    unpack(run, carried)
    assert len(run_ids(open_store(str(tmp_path / "host" / "store")))) == 2
    said = run("work.sh", "60", "K=2", "K=4", LEASE_S="1")
    assert "K=4 (" in said and "is for the next lease" in said and "K=2 (" not in said


@pytest.mark.slow(8)
def test_of_runs_for_several_cards_those_of_the_lent_one_are_measured(tmp_path: Path, carried: Path, run: Run) -> None:
    pack(run, tmp_path, GPUS="h100 h200")
    unpack(run, carried)
    said = run("work.sh", "60", "mtp", LEASE_S="1")
    assert "h100 was planned (NVIDIA H100 80GB HBM3), this is NVIDIA H200" in said
    assert "is for the next lease" in said, "the other run is this card's"


@pytest.mark.slow(5)
def test_a_part_that_would_not_travel_is_told_of_and_nothing_measured_without_all(tmp_path: Path, run: Run) -> None:
    pack(run, tmp_path)
    run("keep.sh", str(tmp_path / "store"))
    with pytest.raises(AssertionError, match=r"not ready, unpack\.sh has not come to its end"):
        run("work.sh", "60")
    (tmp_path / "1").mkdir()
    with (tmp_path / "1" / "engine.part.1").open("wb") as part:
        part.truncate(64 << 20)
    with pytest.raises(AssertionError, match=r"and 64 MiB travel: bundle\.sh in smaller parts"):
        pack(run, tmp_path)


@pytest.mark.slow(23)
def test_a_cell_that_never_starts_goes_into_the_dataset_with_a_reason(tmp_path: Path, carried: Path, run: Run) -> None:
    here = tmp_path / "here"
    pack(run, tmp_path)
    unpack(run, carried)
    assert "ended with 1" in run("work.sh", "240", "mtp", FAKE_ENGINE_BROKEN="serve")
    run("back.sh", str(tmp_path / "out" / "store.tar.gz"), str(here))
    store = open_store(str(here))
    publish(store)
    [tried] = read_current(store, "attempts").to_dicts()
    assert tried["reason"] == "the engine died: ValueError: the fake engine refuses these arguments"
    names = ("model", "precision", "technique", "k", "gpu", "made_up")
    assert [tried[name] for name in names] == [
        "gemma-4-31b-shape", "fp8", "mtp", 2, "h200", "weights=dummy, acceptance=replayed:mtp-gb10-31b",
    ]  # fmt: skip
    assert "throughput" in tried["unmeasured"]
    page = Path(write_report(store)).read_text()
    said = page[page.index('<section id="not-measured">') :]
    assert "mtp K=2" in said and tried["reason"] in said.partition("</section>")[0]


@pytest.mark.slow(3)
def test_a_runner_that_is_killed_or_falls_early_is_a_row_though_none_looks(tmp_path: Path, node_python: Path) -> None:
    fake = FakeRun(tmp_path, "ar")
    (tmp_path / "runs").write_text("r1\n")
    (hold := tmp_path / "hold").touch()
    argv = [str(node_python), str(SCRIPTS / "worker.py"), "--store", fake.store_url, "--logs", str(tmp_path)]
    argv += ["--runs", str(tmp_path / "runs"), "--seconds", "200", "--least-per-start", "0"]

    def work(**env: str) -> subprocess.Popen[str]:
        return subprocess.Popen(argv, cwd=ROOT, env=fake.env("honest") | env, stdout=subprocess.PIPE, text=True)

    worker = work(FAKE_ENGINE_HOLD=str(hold))
    wait_until(lambda: (beat := fake.leases.heartbeat()) is not None and beat.phase == "engine", "an engine's start")
    [runner] = [pid for pid in processes_with(str(tmp_path)) if "tasks.cell" in command_of(pid)]
    os.kill(runner, signal.SIGKILL)
    said, _ = worker.communicate(timeout=PATIENCE_S)
    [engine] = [pid for pid in processes_with(str(tmp_path)) if "fake_engine" in command_of(pid)]
    os.kill(engine, signal.SIGKILL)
    assert "ended with -9" in said
    (Path(fake.store_url) / fake.ledger.cell_root(fake.key) / "cell.json").write_text("{}")  # of another version
    said, _ = work().communicate(timeout=PATIENCE_S)
    assert "ended with 1" in said
    killed, fell = fake.attempts()
    assert (killed.outcome, killed.reason) == ("lost", "the node runner got signal 9")
    assert fell.outcome == "failed" and fell.reason == fell.log_tail, "its own words, and none of the other's"
    assert "run 'r1' was written by another version of specsweep" in fell.reason
