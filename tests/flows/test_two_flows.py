"""Two flows that begin at the same moment, each in a process of its own, on a real S3 server that is slow.

Each process is this file: `python -m tests.flows.test_two_flows FOLDER`. stdin, two lines per trial: its name and its
store's url; the moment (monotonic). What it does is appended to `FOLDER/../<trial>.events`: who, then `launches`, or
`waits` with what it was told.
"""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest

from configs.checkout import ROOT
from flows.cell import measure_cell
from flows.clusters.protocol import CellJob
from flows.flow_heartbeat import HeldCells
from tests.fake_cloud import FakeCluster, FakeSite, context
from tests.fake_run import FakeRun
from tests.loopback import CutLine
from tests.tasks.test_cell import wait_until
from tests.warehouse.ledger.store.conftest import BUCKET, S3Server
from warehouse.ledger.owner import owner_name

ONE_WAY_S = 0.02  # a store far away: 40 ms for an answer
OFFSETS_MS = (0, 5, 10, 20, 30, 40, 50, 60)


class Enough(Exception):
    """The trial is over for this flow."""


class SlowNode(FakeCluster):
    """Is being launched until the other flow has done something, too."""

    events: Path

    def launch(self, job: CellJob) -> None:
        note(self.events, "launches")
        wait_until(lambda: len(self.events.read_text().splitlines()) > 1, "the other flow does something")
        raise Enough


def note(events: Path, what: str) -> None:
    with events.open("a") as file:
        file.write(f"{owner_name()} {what}\n")


def one_trial(folder: Path, name: str, url: str) -> None:
    events = folder.parent / f"{name}.events"
    run = FakeRun(folder / name, store_url=url)
    node = SlowNode(run)
    node.events = events

    def told(line: str) -> None:
        note(events, f"waits: {line}")
        raise Enough

    with HeldCells(run.ledger, print) as heartbeat:
        shared = context(run, FakeSite([node]), told, managing=heartbeat.managing)
        print("set", flush=True)
        begins_s = float(sys.stdin.readline())
        while time.monotonic() < begins_s:
            pass
        try:
            measure_cell(run.ledger, run.planned, shared, lambda _: None)
        except Enough:
            return
    raise AssertionError("it neither launched nor waited")


class Flow:
    def __init__(self, folder: Path, log: Path) -> None:
        argv = [sys.executable, "-m", "tests.flows.test_two_flows", str(folder)]
        with log.open("ab") as errors:
            self.process = subprocess.Popen(
                argv, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, text=True
            )

    def hear(self, line: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()

    def says(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()


@pytest.mark.slow(8)
@pytest.mark.parametrize("s3_server", ["ministack"], indirect=True)
def test_of_two_flows_that_begin_together_one_owns_the_cell_and_the_other_says_whose_it_is(
    tmp_path: Path, s3_server: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = tmp_path / "flows.log"
    with CutLine(s3_server.port, ONE_WAY_S) as line:
        monkeypatch.setenv("AWS_ENDPOINT_URL", line.url)
        flows = [Flow(tmp_path / who, log) for who in "AB"]
        try:
            assert [flow.says() for flow in flows] == ["ready"] * 2, log.read_text()
            for offset_ms in OFFSETS_MS:
                name = f"{offset_ms}ms"
                for flow in flows:
                    flow.hear(f"{name} s3://{BUCKET}/{name}")
                assert [flow.says() for flow in flows] == ["set"] * 2, log.read_text()
                begins_s = time.monotonic() + 0.1
                for flow, late_ms in zip(flows, (0, offset_ms), strict=True):
                    flow.hear(str(begins_s + late_ms / 1000))
                assert [flow.says() for flow in flows] == ["over"] * 2, log.read_text()
                said = [line.split(" ", 1) for line in (tmp_path / f"{name}.events").read_text().splitlines()]
                owners = [who for who, what in said if what == "launches"]
                assert len(owners) == 1, f"{name} apart: {said}"
                (told,) = (what for who, what in said if who != owners[0])
                assert f"another flow works on it ({owners[0]})" in told
        finally:
            for flow in flows:
                flow.process.kill()
                flow.process.communicate()


if __name__ == "__main__":
    print("ready", flush=True)
    while trial := sys.stdin.readline().split():
        one_trial(Path(sys.argv[1]), *trial)
        print("over", flush=True)
