"""A node whose store is away goes on measuring, in order; and what its heartbeat bills is what the rows carry."""

import asyncio
import fcntl
import subprocess
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from math import fsum
from pathlib import Path

import pytest

from tasks import outbox
from tasks.outbox import BOUND_VARIABLE, CellLost, Outbox, outbox_folder, send_left
from tasks.runner import HeartbeatSender, Runner, todo
from tests.busy_machine import PATIENCE_S
from tests.fake_run import FakeRun, ended
from tests.loopback import CutLine
from tests.tasks.test_cell import kill, wait_until
from tests.warehouse.ledger.store.conftest import BUCKET, S3Server, s3_server
from warehouse.dataset.build import consolidate
from warehouse.ledger.commits import Ledger
from warehouse.ledger.lease import Leases
from warehouse.ledger.owner import owner_name
from warehouse.ledger.store import StoreAway, StoreError
from warehouse.ledger.store.local import LocalStore
from warehouse.ledger.tables import decode

__all__ = ["s3_server"]

SUITE = """
name: fake-suite
steps:
  - {step: smoke, items: 5}
  - {step: parity, prompts: prose, n_prompts: 3, context_tokens: 64, output_tokens: 32}
  - {step: eval-tiny, items: 24}
"""


def read_until(runner: subprocess.Popen[str], text: str) -> str:
    said = ""
    assert runner.stdout
    for line in runner.stdout:
        said += line
        if text in line:
            return said
    raise AssertionError(f"the runner ended before it said {text!r}: {said}")


@pytest.mark.slow(5)
@pytest.mark.parametrize("s3_server", ["moto"], indirect=True)
@pytest.mark.parametrize(("meanwhile", "code", "steps"), [("nobody", 0, 3), ("another runner", 76, 1)])
def test_a_node_measures_to_the_end_and_commits_when_the_store_is_back(
    tmp_path: Path, node_python: Path, s3_server: S3Server, meanwhile: str, code: int, steps: int
) -> None:
    run = FakeRun(tmp_path, store_url=f"s3://{BUCKET}/team/a", suite=SUITE)
    with CutLine(s3_server.port) as line:
        runner = run.start(node_python, AWS_ENDPOINT_URL=line.url)
        read_until(runner, "smoke: committed")
        line.cut()
        said = read_until(runner, "[stopping]")
        assert "measuring goes on" in said and BOUND_VARIABLE in said
        assert run.ledger.committed_steps() == {run.key: ["smoke"]}
        if meanwhile == "another runner":
            Leases(run.ledger, run.key, deadline_s=-1).acquire("elsewhere/boot/1/1")
        line.mend()
        rest, _ = runner.communicate(timeout=PATIENCE_S)
    assert runner.returncode == code, rest
    assert len(run.ledger.committed_steps()[run.key]) == steps
    assert [attempt.outcome for attempt in run.attempts()] == ["completed" if code == 0 else "lost"]
    assert [path for path in run.state.rglob("outbox-*/**/*") if path.is_file()] == []


class FarStore(LocalStore):
    """A FAKE store that can be away, and waits `patience_s` for itself; notes what arrives."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.there, self.arrived, self.patience_s = threading.Event(), list[str](), 60.0
        self.there.set()

    def put_new(self, key: str, data: bytes) -> bool:
        if not self.there.wait(self.patience_s):
            raise StoreAway("away")
        self.arrived.append(key)
        return super().put_new(key, data)


class Scene:
    def __init__(self, folder: Path) -> None:
        run = FakeRun(folder)
        self.store = FarStore(Path(run.store_url))
        self.ledger, self.key, self.root = Ledger(self.store, "r1"), run.key, run.ledger.step_root(run.key, "smoke")
        self.folder = outbox_folder(folder / "disk", run.ledger.store)
        self.is_ours = True
        self.kept = list[float]()

    def box(self) -> Outbox:
        return Outbox(self.store, self.folder, self.ledger, self.key, lambda: self.is_ours, self.kept.append)


@pytest.fixture
def scene(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Scene:
    monkeypatch.setattr(outbox, "DIRECT_S", 0.0)
    return Scene(tmp_path)


def test_what_waits_is_read_as_if_it_were_stored_and_goes_up_in_order(scene: Scene) -> None:
    box, keys = scene.box(), [f"{scene.root}/parts/{name}" for name in "cab"] + [f"{scene.root}/commit.json"]
    scene.store.there.clear()
    for key in keys:
        assert box.put_new(key, key.encode())
    assert box.list(scene.root) == sorted(keys) and box.get(keys[1]) == keys[1].encode()
    assert not box.is_empty
    written_at = time.monotonic()
    assert scene.kept == []
    scene.store.there.set()
    box.flush()
    assert scene.store.arrived == keys and box.is_empty
    assert scene.kept == sorted(scene.kept) and scene.kept[-1] <= written_at and len(scene.kept) == len(keys)
    assert box.get(keys[1]) == keys[1].encode()
    assert box.get(f"{scene.root}/parts/none") is None


def test_a_full_box_waits_as_long_as_its_patience_lasts(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(BOUND_VARIABLE, "0.001")
    scene.store.there.clear()
    box = scene.box()
    box.put_new(f"{scene.root}/parts/1", b"x" * 600)
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(box.put_new, f"{scene.root}/parts/2", b"x" * 600)
        scene.store.there.set()
        assert waiting.result(PATIENCE_S)
    box.flush()
    assert len(scene.store.arrived) == 2
    scene.store.there.clear()
    scene.store.patience_s = 0.01
    box.put_new(f"{scene.root}/parts/3", b"x" * 600)
    with pytest.raises(StoreAway):
        box.put_new(f"{scene.root}/parts/4", b"x" * 600)


def spoil_disk(scene: Scene, box: Outbox) -> None:
    scene.folder.parent.mkdir(parents=True)
    scene.folder.write_text("no folder")
    with pytest.raises(StoreError, match=str(scene.folder)):
        box.put_new(f"{scene.root}/parts/1", b"rows")


def lose_cell(scene: Scene, box: Outbox) -> None:
    box.put_new(f"{scene.root}/parts/1", b"rows")
    box.put_new(f"{scene.root}/commit.json", b"commit")
    scene.is_ours = False
    scene.store.there.set()
    with pytest.raises(CellLost):
        box.flush()
    assert f"{scene.root}/commit.json" not in scene.store.arrived
    assert LocalStore(scene.folder).list("") == [], "no later runner sends it"


def leave(scene: Scene, box: Outbox) -> None:
    box.put_new(f"{scene.root}/parts/1", b"rows")
    scene.store.patience_s = 0.01
    box.hurry()
    with pytest.raises(StoreAway):
        box.flush()
    scene.store.there.set()
    send_left(scene.store, scene.folder)
    assert scene.store.get(f"{scene.root}/parts/1") == b"rows", "the next runner on this machine sends it"
    assert LocalStore(scene.folder).list("") == []


@pytest.mark.parametrize("how", [spoil_disk, lose_cell, leave])
def test_what_ends_a_runner_whose_store_is_away(scene: Scene, how: Callable[[Scene, Outbox], None]) -> None:
    scene.store.there.clear()
    scene.store.patience_s = 0.05
    how(scene, scene.box())


def test_no_error_ends_a_heartbeat(run: FakeRun, capsys: pytest.CaptureFixture[str]) -> None:
    lease, leases, ended = run.leases.acquire("here"), run.leases, list[str]()
    troubles: list[Exception] = [StoreError("refused"), ValueError("odd"), StoreAway("away"), StoreError("refused")]
    beat = leases.beat

    def troubled(*args: object) -> None:
        if troubles:
            raise troubles.pop()
        beat(*args)  # type: ignore[arg-type]
        leases.ask_to_stop(lease, "enough")

    leases.beat = troubled  # type: ignore[method-assign]
    sender = HeartbeatSender(leases, lease, interval_s=0.01)
    asyncio.run(sender.run(lambda: ended.append("lost"), lambda: ended.append("stopped")))
    assert ended == ["stopped"] and troubles == []
    assert capsys.readouterr().out.count("no heartbeat was stored: refused") == 2


BESIDE_S = 0.2
"""What may stand in one book only: between two calls of the clock, before and behind each of four steps' rows, this
process may wait for a processor. Nothing that it does there takes a millisecond."""

OFTEN = ("--heartbeat-s", "0.1")
STUCK_S = 3.0
"""How long an engine hangs before its runner is killed: by then the runner's book knows of all that it stored."""


def wait_until_stuck(run: FakeRun, parts: str, after: int) -> None:
    """Return when the engine hangs behind stored rows, and the runner has said so for a while."""
    wait_until(lambda: run.stored(parts) and len(run.prompts_sent()) > after, "an engine that hangs behind rows")
    hung_s = heard_s(run)
    wait_until(lambda: heard_s(run) > hung_s + STUCK_S, "a book that knows of it")


def heard_s(run: FakeRun) -> float:
    """Seconds of smoke and measuring that the runner's last heartbeat says."""
    beat = run.leases.heartbeat()
    return 0.0 if beat is None else beat.smoke_s + beat.measure_s


def billed_s(run: FakeRun) -> float:
    """Seconds of smoke and measuring that the attempts' rows say."""
    return fsum((attempt.smoke_s or 0.0) + (attempt.measure_s or 0.0) for attempt in run.attempts())


def carried_s(run: FakeRun) -> float:
    """Seconds that the rows of the dataset carry."""
    return fsum(row["gpu_s"] or 0.0 for row in consolidate(run.ledger.store, ["r1"]).results)


@pytest.mark.slow(29)
def test_the_seconds_of_a_killed_attempt_are_billed_and_carried_by_the_rows(tmp_path: Path, node_python: Path) -> None:
    run, hang, windows = FakeRun(tmp_path), tmp_path / "hang", "throughput/parts/windows-*"
    first = run.start(node_python, "hangs_later", OFTEN, FAKE_ENGINE_HANG=str(hang), FAKE_ENGINE_TOKEN_S="0.01")
    wait_until(lambda: run.stored(windows), "rows")  # behind no number of requests: a starved client measures again
    sent = len(run.prompts_sent())
    hang.touch()
    wait_until_stuck(run, windows, sent)
    kill(first)
    run.measured(node_python, arguments=OFTEN)
    lost, done = run.attempts()
    assert (lost.outcome, done.outcome) == ("lost", "completed")
    assert lost.measure_s is not None and lost.measure_s > 0.5, "what it measured and stored was not in vain"
    assert lost.lost_s is not None and lost.lost_s > STUCK_S, "what it measured last was"
    assert carried_s(run) == pytest.approx(billed_s(run), rel=0.01, abs=BESIDE_S)
    throughput = run.commit("throughput")
    of_lost_s = fsum(part.spent_s or 0.0 for part in throughput.parts if part.attempt == 1)
    assert of_lost_s > 0.5 and throughput.wall_s < fsum(part.spent_s or 0.0 for part in throughput.parts)


@pytest.mark.slow(23)
def test_a_smoke_that_starts_anew_still_costs_what_the_first_one_took(run: FakeRun, node_python: Path) -> None:
    first = run.start(node_python, "hangs_later", OFTEN, FAKE_ENGINE_AFTER="8", FAKE_ENGINE_TOKEN_S="0.05")
    wait_until_stuck(run, "smoke/parts/*", 8)
    kill(first)
    run.measured(node_python, arguments=OFTEN)
    assert carried_s(run) == pytest.approx(billed_s(run), rel=0.01, abs=BESIDE_S)


@pytest.mark.slow(20)
def test_waiting_for_a_neighbours_measurement_is_nobodys_cost(tmp_path: Path, node_python: Path) -> None:
    run, shared = FakeRun(tmp_path), tmp_path / "speed.lock"
    shared.touch()
    with shared.open("rb") as neighbour:
        fcntl.flock(neighbour, fcntl.LOCK_EX)
        runner = run.start(node_python, arguments=OFTEN, SPECSWEEP_SPEED_LOCK=str(shared))

        def waits() -> bool:
            beat = run.leases.heartbeat()
            return beat is not None and "neighbour" in beat.last_line

        wait_until(waits, "a runner that waits for its neighbour")
        began = time.monotonic()
        before = run.leases.heartbeat()
        wait_until(lambda: time.monotonic() - began > 2, "two seconds of waiting")
        after = run.leases.heartbeat()
        assert before is not None and after is not None and after.measure_s == before.measure_s
        waited_s = time.monotonic() - began
    code, said = ended(runner)
    assert code == 0, said
    [attempt] = run.attempts()
    spent_s = fsum(part.spent_s or 0.0 for part in run.commit("throughput").parts)
    assert attempt.wall_s is not None and attempt.load_s is not None
    assert carried_s(run) + waited_s + attempt.load_s < attempt.wall_s
    assert spent_s <= carried_s(run) == pytest.approx(billed_s(run), rel=0.01, abs=BESIDE_S)


async def test_what_a_slow_store_takes_is_not_lost(run: FakeRun, monkeypatch: pytest.MonkeyPatch) -> None:
    """A notice comes while measured windows wait on the disk, for a FAKE store that is back when they are flushed."""
    for name, value in (run.env("honest") | {"FAKE_ENGINE_TOKEN_S": "0.004"}).items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(outbox, "DIRECT_S", 0.0)
    store, root = FarStore(Path(run.store_url)), run.ledger.step_root(run.key, "throughput")

    def windows(seen: Outbox | FarStore) -> list[str]:
        return [key for key in seen.list(root) if "/windows-" in key]

    def flush_when_back() -> None:
        store.there.set()
        flush()

    ledger = Ledger(store, "r1")
    leases = Leases(ledger, run.key)
    lease = leases.acquire(owner_name())
    runner = Runner(ledger, run.planned, leases, lease, HeartbeatSender(leases, lease))
    flush = runner.outbox.flush
    monkeypatch.setattr(runner.outbox, "flush", flush_when_back)
    work = asyncio.create_task(runner.measure_all(todo(ledger, run.planned)))
    await asyncio.to_thread(wait_until, lambda: store.list(root), "throughput begins")
    store.there.clear()
    await asyncio.to_thread(wait_until, lambda: windows(runner.outbox), "measured windows")
    runner.notice = "EC2 says so"
    work.cancel()
    await asyncio.wait({work})
    assert work.cancelled()
    stored_s = fsum(row["wall_s"] for key in windows(store) for row in decode(store.get(key) or b"", key))
    [attempt] = run.attempts()
    assert attempt.outcome == "notice" and attempt.measure_s is not None
    assert 0.5 < stored_s < attempt.measure_s, "what is in the store was not in vain"
