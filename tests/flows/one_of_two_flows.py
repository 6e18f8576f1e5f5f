"""A flow of its own process for `test_two_flows`: begins each trial's cell at the moment it is told.

argv: folder. stdin, two lines per trial: its name and its store's url; the moment (monotonic). What it does is appended
to `<folder>/../<trial>.events`: who, then `launches`, or `waits` with what it was told.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

from flows.cell import measure_cell
from flows.clusters.protocol import CellJob
from flows.flow_heartbeat import HeldCells
from tests.fake_cloud import FakeCluster, FakeSite, context, wait_for
from tests.fake_run import FakeRun
from warehouse.ledger.owner import owner_name


class Enough(Exception):
    """The trial is over for this flow."""


class Node(FakeCluster):
    """Is being launched until the other flow has done something, too."""

    events: Path

    def launch(self, job: CellJob) -> None:
        note(self.events, "launches")
        wait_for(lambda: len(self.events.read_text().splitlines()) > 1, "the other flow does something")
        raise Enough


def note(events: Path, what: str) -> None:
    with events.open("a") as file:
        file.write(f"{owner_name()} {what}\n")


def one_trial(folder: Path, name: str, url: str) -> None:
    events = folder.parent / f"{name}.events"
    run = FakeRun(folder / name, store_url=url)
    node = Node(run, Path(sys.executable))
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


if __name__ == "__main__":
    print("ready", flush=True)
    while trial := sys.stdin.readline().split():
        one_trial(Path(sys.argv[1]), *trial)
        print("over", flush=True)
