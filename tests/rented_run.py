"""A run on rented machines as its store tells it, cell by cell, and waiting for what it does."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable
from pathlib import Path

from flows.clusters.protocol import cluster_name
from flows.plans import make_plan
from warehouse.ledger.commits import Ledger
from warehouse.ledger.lease import Attempt, Heartbeat, Leases
from warehouse.ledger.placement import Placements, PlacementStory
from warehouse.ledger.store import open_store


class RentedRun:
    """One run of one sweep of the user's own; who starts it says how, and what was said."""

    def __init__(self, sweep: Path, store_url: str, run_id: str) -> None:
        """Plan the sweep, and open its run, which may not have begun."""
        self.store_url, self.run_id = store_url, run_id
        self.ledger = Ledger(open_store(store_url), run_id)
        self.planned = make_plan(str(sweep)).cells
        self.keys = [planned.cell.cell_key for planned in self.planned]

    def said(self) -> str:
        raise NotImplementedError

    def cluster(self, cell: int) -> str:
        return cluster_name(self.store_url, self.run_id, self.keys[cell])

    def heartbeat(self, cell: int) -> Heartbeat | None:
        return Leases(self.ledger, self.keys[cell]).heartbeat()

    def attempts(self, cell: int) -> list[Attempt]:
        return Leases(self.ledger, self.keys[cell]).attempts()

    def stories(self, cell: int) -> list[PlacementStory]:
        return Placements(self.ledger, self.keys[cell]).stories()

    def ends(self, cell: int) -> list[str]:
        return [story.end.outcome if story.end else "open" for story in self.stories(cell)]

    def is_measured(self, cell: int) -> bool:
        names = (each.name for each in self.planned[cell].measurements)
        return all(self.ledger.read_commit(self.keys[cell], name) is not None for name in names)


def wait_for(
    true: Callable[[], bool], what: str, run: RentedRun, process: subprocess.Popen[bytes] | None, seconds: float
) -> None:
    """Ask until it is so; fails when the sweep ends first, if it is a process, or after `seconds`."""
    deadline = time.monotonic() + seconds
    while not true():
        assert process is None or process.poll() is None, f"the sweep ended before: {what}\n{run.said()}"
        assert time.monotonic() < deadline, f"not within {seconds:.0f} s: {what}\n{run.said()}"
        time.sleep(0.5)  # each look asks the store for dozens of objects
