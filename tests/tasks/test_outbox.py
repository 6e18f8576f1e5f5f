"""A node whose store is away: it goes on measuring, and what it measured goes up in order when the store is back."""

from __future__ import annotations

import asyncio
import subprocess
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tasks import outbox
from tasks.outbox import BOUND_VARIABLE, CellLost, Outbox, outbox_folder, send_left
from tasks.runner import HeartbeatSender
from tests.fake_run import FakeRun
from tests.loopback import CutLine
from tests.warehouse.ledger.store.conftest import BUCKET, S3Server, s3_server
from warehouse.ledger.commits import Ledger
from warehouse.ledger.lease import Leases
from warehouse.ledger.store import StoreAway, StoreError
from warehouse.ledger.store.local import LocalStore

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
        rest, _ = runner.communicate(timeout=240)
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
        self.folder = outbox_folder(folder / "disk", self.store)
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


def test_a_full_box_waits_for_the_store_as_long_as_its_patience_lasts(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(BOUND_VARIABLE, "0.001")
    scene.store.there.clear()
    box = scene.box()
    box.put_new(f"{scene.root}/parts/1", b"x" * 600)
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(box.put_new, f"{scene.root}/parts/2", b"x" * 600)
        scene.store.there.set()
        assert waiting.result(60)
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
def test_a_runner_ends_for_a_full_disk_a_lost_cell_or_when_asked_to(
    scene: Scene, how: Callable[[Scene, Outbox], None]
) -> None:
    scene.store.there.clear()
    scene.store.patience_s = 0.05
    how(scene, scene.box())


def test_no_error_ends_a_heartbeat(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = FakeRun(tmp_path)
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
