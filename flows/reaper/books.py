"""What the store knows of rented clusters: whose each is, whether somebody still uses it, and how to close it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import NamedTuple

from flows.clusters.protocol import cluster_name, names_of_store
from warehouse.ledger.claims import Claims, estimated_end_s
from warehouse.ledger.clock import iso_of
from warehouse.ledger.commits import Ledger
from warehouse.ledger.lease import LeaseHeld, Leases, gone_attempt
from warehouse.ledger.outcomes import Ended
from warehouse.ledger.owner import owner_name
from warehouse.ledger.placement import PlacementEnd, Placements, PlacementStory
from warehouse.ledger.runs import OddRun, tell_skipped
from warehouse.ledger.store import Store
from warehouse.ledger.store.identity import known_id


class CellOfRun(NamedTuple):
    """The cell of the run that a cluster was rented for."""

    run_id: str
    cell_key: str


def rented_cells(keys: Iterable[str]) -> tuple[set[CellOfRun], set[CellOfRun]]:
    """Cells for which a machine was ever asked, and those with a placement whose end is not recorded, by a listing."""
    asked, ended = set[tuple[CellOfRun, str]](), set[tuple[CellOfRun, str]]()
    for key in keys:
        match key.split("/"):
            case ["runs", run_id, "cells", cell_key, "placements", name]:
                number, _, word = name.partition(".")
                (ended if word == "end.json" else asked).add((CellOfRun(run_id, cell_key), number))
    return {cell for cell, _ in asked}, {cell for cell, _ in asked - ended}


class Owner(NamedTuple):
    """Who works with a cluster now. `name` is as leases and flows write it (`warehouse.ledger.owner.owner_name`)."""

    name: str
    doing: str


class Books:
    """A store's runs, listed once; owners are read anew with every question.

    A run that this version can't read is named on stderr. What it rented is left to whoever can.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._skipped: set[str] = set()
        self._id = known_id(store) or ""  # without one nothing was rented in its name
        self.clusters: dict[str, CellOfRun] = {}
        keys = store.list("runs")
        for key in keys:
            match key.split("/"):
                case ["runs", run_id, "cells", cell_key, "cell.json"]:
                    with self.reading():
                        name = cluster_name(self._id, Ledger(store, run_id).run_id, cell_key)
                        self.clusters[name] = CellOfRun(run_id, cell_key)
        rented, unended = rented_cells(keys)
        self.rented_once = bool(rented)
        self.open = {name: cell for name, cell in self.clusters.items() if cell in unended}

    def knows_not(self, cluster: str) -> bool:
        """Whether a cluster is of another store."""
        return not cluster.startswith(names_of_store(self._id))

    def owner(self, cell: CellOfRun) -> Owner | None:
        """Who measures the cell or manages its clusters; None if nobody has been heard of lately."""
        leases = self._leases(cell)
        with self.reading():
            lease = leases.current()
            if lease is not None and not leases.is_free(lease):
                return Owner(lease.owner, f"attempt {lease.epoch} of run {cell.run_id} measures on it")
            flow = Claims(Ledger(self._store, cell.run_id), cell.cell_key).manager()
            return None if flow is None else Owner(flow, f"a flow of run {cell.run_id} manages it")
        return Owner("?", f"this version can't read who works on its cell of run {cell.run_id}")

    def story(self, cell: CellOfRun) -> PlacementStory | None:
        """The newest placement of a cell, with its price and its place; None: none, unreadable, or no name of ours."""
        with self.reading():
            stories = self._placements(cell).stories()
            if stories and self.clusters.get(stories[-1].asked.cluster) == cell:
                return stories[-1]
        return None

    def close(self, cell: CellOfRun, how: Ended, detail: str, reason: str, *, was_there: bool) -> None:
        """Record that a cell's cluster is gone, if nobody has: `detail` in its placement, `reason` in its attempt.

        `was_there`: it was seen until now; else its end is estimated.
        """
        with self.reading():
            self._close(cell, how, detail, reason, was_there=was_there)

    def _close(self, cell: CellOfRun, how: Ended, detail: str, reason: str, *, was_there: bool) -> None:
        placements, leases = self._placements(cell), self._leases(cell)
        stories = placements.stories()
        open_ones = [story for story in stories if story.end is None]
        now = leases.clock.now_iso()
        for story in reversed(open_ones):
            is_newest = story is open_ones[-1]
            later = next((each for each in stories if each.asked.number > story.asked.number), None)
            at = now if was_there and is_newest else min(now, iso_of(self.gone_s(cell, story, later)))
            number = self._close_attempt(leases, stories, story, how, reason, at) if is_newest else None
            end = PlacementEnd(at=at, outcome=how.row.recorded, detail=detail, attempt=number, estimated=at != now)
            placements.end(story.asked.number, end)

    def gone_s(self, cell: CellOfRun, story: PlacementStory, later: PlacementStory | None = None) -> float:
        """When an unseen cluster was gone at the latest, seconds since 1970; `later`: what came after it."""
        return estimated_end_s(Ledger(self._store, cell.run_id), story, later.asked.asked_at if later else None)

    def _close_attempt(
        self, leases: Leases, stories: list[PlacementStory], story: PlacementStory, how: Ended, reason: str, at: str
    ) -> int | None:
        """Close a placement's attempt and return its number, a fresh one if its node never took one; None: not ours."""
        lease = leases.current()
        if lease is not None and leases.closed(lease.epoch) is not None:
            claimed = {each.end.attempt for each in stories if each.end is not None}
            if lease.epoch not in claimed and lease.granted_at >= story.asked.asked_at:
                return lease.epoch  # its runner has said itself how it ended
            lease = None
        if lease is None:
            try:
                lease = leases.acquire(owner_name())
            except LeaseHeld:
                return None  # a new owner has just come; the number is theirs
        price_usd_h = story.asked.offer.price_usd_h
        ended_at = max(at, lease.granted_at)
        leases.close(gone_attempt(lease, leases.heartbeat(), how, reason, ended_at, price_usd_h))
        return lease.epoch

    @contextmanager
    def reading(self) -> Iterator[None]:
        """Give up what is done inside, and name the run once, where this version can't read it."""
        try:
            yield
        except OddRun as odd:
            if odd.run_id not in self._skipped:
                self._skipped.add(odd.run_id)
                tell_skipped(odd)

    def _leases(self, cell: CellOfRun) -> Leases:
        return Leases(Ledger(self._store, cell.run_id), cell.cell_key)

    def _placements(self, cell: CellOfRun) -> Placements:
        return Placements(Ledger(self._store, cell.run_id), cell.cell_key)
