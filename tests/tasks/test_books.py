"""Two books of the same seconds: what the node's heartbeat bills an attempt for, and what the dataset's rows carry."""

import asyncio
import fcntl
import time
from math import fsum
from pathlib import Path

import pytest

from tasks import outbox
from tasks.outbox import Outbox
from tasks.runner import HeartbeatSender, Runner, todo
from tests.fake_run import FakeRun, ended
from tests.tasks.test_cell import wait_until
from tests.tasks.test_outbox import FarStore
from warehouse.dataset.build import consolidate
from warehouse.ledger.commits import Ledger
from warehouse.ledger.lease import Leases
from warehouse.ledger.owner import owner_name
from warehouse.ledger.tables import decode

BESIDE_S = 0.2
"""What may stand in one book only: between two calls of the clock, before and behind each of four steps' rows, this
process may wait for a processor. Nothing that it does there takes a millisecond."""

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
    often = ("--heartbeat-s", "0.1")
    first = run.start(node_python, "hangs_later", often, FAKE_ENGINE_HANG=str(hang), FAKE_ENGINE_TOKEN_S="0.01")
    wait_until(lambda: run.stored(windows), "rows")  # behind no number of requests: a starved client measures again
    sent = len(run.prompts_sent())
    hang.touch()
    wait_until_stuck(run, windows, sent)
    first.kill()
    first.communicate(timeout=240)
    run.measured(node_python, arguments=often)
    lost, done = run.attempts()
    assert (lost.outcome, done.outcome) == ("lost", "completed")
    assert lost.measure_s is not None and lost.measure_s > 0.5, "what it measured and stored was not in vain"
    assert lost.lost_s is not None and lost.lost_s > STUCK_S, "what it measured last was"
    assert carried_s(run) == pytest.approx(billed_s(run), rel=0.01, abs=BESIDE_S)
    throughput = run.commit("throughput")
    of_lost_s = fsum(part.spent_s or 0.0 for part in throughput.parts if part.attempt == 1)
    assert of_lost_s > 0.5 and throughput.wall_s < fsum(part.spent_s or 0.0 for part in throughput.parts)


@pytest.mark.slow(23)
def test_a_smoke_that_starts_anew_still_costs_what_the_first_one_took(tmp_path: Path, node_python: Path) -> None:
    run = FakeRun(tmp_path)
    often = ("--heartbeat-s", "0.1")
    first = run.start(node_python, "hangs_later", often, FAKE_ENGINE_AFTER="8", FAKE_ENGINE_TOKEN_S="0.05")
    wait_until_stuck(run, "smoke/parts/*", 8)
    first.kill()
    first.communicate(timeout=240)
    run.measured(node_python, arguments=often)
    assert carried_s(run) == pytest.approx(billed_s(run), rel=0.01, abs=BESIDE_S)


@pytest.mark.slow(20)
def test_waiting_for_a_neighbours_measurement_is_nobodys_cost(tmp_path: Path, node_python: Path) -> None:
    run, shared = FakeRun(tmp_path), tmp_path / "speed.lock"
    shared.touch()
    with shared.open("rb") as neighbour:
        fcntl.flock(neighbour, fcntl.LOCK_EX)
        runner = run.start(node_python, arguments=("--heartbeat-s", "0.1"), SPECSWEEP_SPEED_LOCK=str(shared))

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


async def test_what_a_slow_store_takes_is_not_lost(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A notice comes while measured windows wait on the disk, for a FAKE store that is back when they are flushed."""
    run = FakeRun(tmp_path)
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
