"""A machine that nobody looks after ends itself; one whose flow lives goes on."""

import asyncio
import os
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from flows.clusters.skypilot.carried import LOG, timer_command
from tasks.host.time_to_live import TimeToLive, renew
from tasks.notice import TIME_TO_LIVE_VARIABLE, keep_alive
from tests.fake_run import FakeRun
from warehouse.ledger.claims import Claims, beat

LONGEST_S = 3600.0


@pytest.mark.parametrize(
    ("told", "left_s"),
    [
        ((b"3600",), 3600.0),
        ((b"9000000",), 3600.0),
        ((b"600",), 2600.0),
        ((b"-1", b"nan", b"", b"\xff for ever"), 2600.0),
        ((b"inf",), 3600.0),
    ],
    ids=["renewed", "never for longer", "never shortened", "what is no number says nothing", "nor without end"],
)
def test_a_renewal_lengthens_a_machines_life_and_never_beyond_its_bound(told: tuple[bytes, ...], left_s: float) -> None:
    life = TimeToLive(LONGEST_S, now_s=0.0)
    for words in told:
        life.told(words, now_s=1000.0)
    assert life.left_s(now_s=1000.0) == left_s


def test_what_a_first_boot_runs_powers_the_machine_off_when_nobody_renews_it(tmp_path: Path) -> None:
    """The very line that SkyPilot hands to cloud-init, with a timer address and a `shutdown` of the test's own."""
    address, off = "timer", tmp_path / "off"  # a file, as no argument can begin as an abstract name does
    shutdown = tmp_path / "shutdown"
    shutdown.write_text(f'#!/bin/sh\necho "$@" >{off}.new && mv {off}.new {off}\n')
    shutdown.chmod(0o755)
    line = timer_command(1.0).replace(LOG, f"{tmp_path}/log").replace(" 1 >", f" 1 {address} >")
    assert address in line and line.endswith("&")
    env = {"PATH": f"{tmp_path}:{os.environ['PATH']}"}
    asked = ["sh", "-c", f"{line}\necho $!"]
    script = subprocess.run(asked, cwd=tmp_path, env=env, capture_output=True, text=True, check=True)
    try:
        deadline = time.monotonic() + 60
        while not off.exists():
            assert time.monotonic() < deadline, (tmp_path / "log").read_text()
            time.sleep(0.05)
        assert off.read_text().split() == ["-P", "now"]
        assert (tmp_path / address).is_socket(), "it stays behind"
    finally:
        os.kill(int(script.stdout), 9)


class Door:
    """Notes what the machine's timer is told."""

    def __init__(self) -> None:
        self.told: list[float] = []

    def renew(self, left_s: float) -> bool:
        self.told.append(left_s)
        return True


def looked(run: FakeRun, door: Door, looks: int) -> list[str]:
    """What a node runner says while it looks at its flow: so often, or until the machine's timer was told something."""
    said: list[str] = []
    begun = 0

    class Counted(Claims):
        def age_s(self) -> float | None:
            nonlocal begun
            begun += 1
            return super().age_s()

    async def until_enough() -> None:
        task = asyncio.create_task(keep_alive(Counted(run.ledger, run.key), said.append, door.renew))
        while begun <= looks and not door.told and not task.done():
            await asyncio.sleep(0.01)
        task.cancel()

    asyncio.run(asyncio.wait_for(until_enough(), 60))
    return said


@pytest.fixture
def run(tmp_path: Path) -> FakeRun:
    return FakeRun(tmp_path)


def heard(run: FakeRun, age_s: float = 0.0, *, released: bool = False) -> None:
    """The flow's last heartbeat, so many seconds ago by the store's clock."""
    claims = Claims(run.ledger, run.key)
    claim = claims.take("elsewhere/boot/1/1", "pulse")
    beat(run.ledger, "pulse")
    if released:
        claims.release(claim)
    then = time.time() - age_s
    for path in Path(run.ledger.store.uri(run.ledger.root)).rglob("flows/*.json"):
        os.utime(path, (then, then))


def test_a_machine_lives_as_long_as_its_flow_is_heard_of(run: FakeRun, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(TIME_TO_LIVE_VARIABLE, "0.06")
    door = Door()
    for age_s, released in ((600.0, False), (0.0, True)):
        heard(run, age_s, released=released)
        looked(run, door, looks=2)
    assert not door.told, "silent for too long, or it has let go of the cell"
    monkeypatch.setenv(TIME_TO_LIVE_VARIABLE, str(LONGEST_S))
    heard(run, 600.0)
    looked(run, door, looks=1)
    assert 2900 < door.told[0] < 3001, "its seconds count from the flow's last heartbeat"


def test_neither_a_store_that_was_away_nor_an_odd_error_decides(run: FakeRun, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(TIME_TO_LIVE_VARIABLE, str(LONGEST_S))
    monkeypatch.setattr("tasks.notice.ANXIOUS_S", 0.01)
    heard(run, 600.0)
    door, real, troubles = Door(), run.ledger.store.get, [ValueError("a field that we don't know")]

    def get(key: str) -> bytes | None:
        if troubles:
            raise troubles.pop()
        return real(key)

    monkeypatch.setattr(run.ledger.store, "get", get)
    monkeypatch.setattr(run.ledger.store, "silence_s", lambda key: 1.0)  # since it is back
    said = looked(run, door, looks=3)
    assert ["a field that we don't know" in line for line in said] == [True]
    assert 2900 < door.told[0] < 3001


def test_a_machine_without_a_timer_says_so_once_and_measures(run: FakeRun, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(TIME_TO_LIVE_VARIABLE, str(LONGEST_S))
    heard(run)
    door = Door()
    monkeypatch.setattr(door, "renew", lambda left_s: renew(left_s, f"\0specsweep-nobody-{os.getpid()}"))
    assert ["has no timer" in line for line in looked(run, door, looks=1)] == [True]


def test_the_runners_word_reaches_the_timer() -> None:
    address = f"\0specsweep-door-{os.getpid()}"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as door:
        door.bind(address)
        program = f"from tasks.host.time_to_live import renew; assert renew(12.5, {address!r})"
        subprocess.run([sys.executable, "-c", program], check=True)
        assert float(door.recv(64)) == 12.5
