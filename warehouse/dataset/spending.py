"""What a run, or the calendar month, has cost so far, read from the placements of a store.

Machines that are still up are counted until now, and those that no process works with any more until they had idled out
(`warehouse.ledger.claims`). A cell is read only when one listing shows that its placements' records have changed.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import NamedTuple

from warehouse.dataset.bill import is_free, month_of, rented_span
from warehouse.ledger.claims import end_after, estimated_end_s
from warehouse.ledger.clock import usd_of
from warehouse.ledger.commits import Ledger
from warehouse.ledger.lease import Leases
from warehouse.ledger.looks import SharedLook
from warehouse.ledger.placement import Placements, PlacementStory
from warehouse.ledger.store import Store

RUN_REFRESH_S = 30.0
"""How old the listing of a run may be: at 10 USD/h, a new placement costs 8 cents before it is listed."""

STORE_REFRESH_S = 600.0
"""How old the listing of the whole store may be, which finds other runs' placements but lists every part too."""

READERS = 16  # cells read at the same time
_Cell = tuple[str, str]  # a run's id, and a cell's key

ANY_TIME = (float("-inf"), float("inf"))


class Spent(NamedTuple):
    """Dollars by cell key. `up`: clusters without a recorded end. `unpriced`: at an unknown price; they count as 0."""

    by_cell: Mapping[str, float]
    up: tuple[str, ...] = ()
    unpriced: tuple[str, ...] = ()

    @property
    def usd(self) -> float:
        """Dollars of all cells together."""
        return sum(self.by_cell.values(), 0.0)


class Spending:
    """Reads a store's placements again and again; safe for many threads."""

    def __init__(self, store: Store, now_s: Callable[[], float], look: SharedLook | None = None) -> None:
        """`now_s` returns seconds since 1970; `look`: where a flow lists its run anyway."""
        self._store, self._look = store, look
        self._now_s = now_s
        self._lock = threading.Lock()
        self._stories: dict[_Cell, list[PlacementStory]] = {}
        self._placements: dict[_Cell, Placements] = {}
        self._records: dict[_Cell, list[str]] = {}
        self._read_at_s: dict[str, float] = {}
        self._until_s: dict[tuple[str, str, int], float] = {}
        """Until when an open placement is billed at the latest, by run, cell and number; it never becomes earlier."""

    def of_run(self, run_id: str, *, fresh: bool = False) -> Spent:
        """What one run has cost; `fresh` reads the store now."""
        with self._lock:
            self._refresh(f"runs/{run_id}/cells", 0.0 if fresh else RUN_REFRESH_S)
            return self._spent([cell for cell in self._stories if cell[0] == run_id], ANY_TIME)

    def of_month(self, *, fresh: bool = False) -> Spent:
        """What all runs of the store have cost in this calendar month, UTC; by cell, whatever its run."""
        with self._lock:
            self._refresh("runs", 0.0 if fresh else STORE_REFRESH_S)
            return self._spent(self._stories, month_of(self._now_s()))

    def _refresh(self, prefix: str, max_age_s: float) -> None:
        """List `prefix` if that was last done too long ago, and read the cells with new or open placements."""
        now_s = self._now_s()
        if prefix in self._read_at_s and now_s - self._read_at_s[prefix] < max_age_s:
            return
        keys, age_s = self._listed(prefix, max_age_s)
        records, until_s = _records(keys), now_s + max_age_s
        changed = [
            cell for cell, names in records.items() if self._records.get(cell) != names or self._is_due(cell, until_s)
        ]
        with ThreadPoolExecutor(READERS) as pool:
            self._stories |= zip(changed, pool.map(partial(self._read, until_s=until_s), changed), strict=True)
        self._records |= records
        self._read_at_s[prefix] = now_s - age_s

    def _listed(self, prefix: str, max_age_s: float) -> tuple[list[str], float]:
        """Keys below a prefix, and how many seconds ago they were listed."""
        if self._look is None or prefix != self._look.root or not max_age_s:
            return self._store.list(prefix), 0.0
        return self._look.keys(max_age_s)

    def _is_due(self, cell: _Cell, until_s: float) -> bool:
        """Whether an open placement of the cell is billed by then only if a runner or flow still works with it."""
        return any(
            story.end is None and self._until_s.get((*cell, story.asked.number), 0.0) <= until_s
            for story in self._stories[cell]
        )

    def _read(self, cell: _Cell, until_s: float) -> list[PlacementStory]:
        """The placements of a cell, and of the open ones whether they are billed until the next listing."""
        run_id, cell_key = cell
        ledger = Ledger(self._store, run_id)
        placements = self._placements.setdefault(cell, Placements(ledger, cell_key))
        stories = placements.stories()
        for story, later in zip(stories, [*stories[1:], None], strict=True):
            if story.end is not None:
                continue
            key = (run_id, cell_key, story.asked.number)
            next_asked_at = None if later is None else later.asked.asked_at
            known_s = max(self._until_s.get(key, 0.0), end_after(story, (), (), next_asked_at))
            if known_s <= until_s:  # one request for the runner's word, which may do, before some for its flow's
                beat = Leases(ledger, cell_key).heartbeat()
                known_s = end_after(story, [] if beat is None else [beat.at], (), next_asked_at)
            self._until_s[key] = known_s if known_s > until_s else estimated_end_s(ledger, story, next_asked_at)
        return stories

    def _spent(self, cells: Iterable[tuple[str, str]], within: tuple[float, float]) -> Spent:
        """Dollars of the billed seconds inside a span of time."""
        now_s = self._now_s()
        by_cell: dict[str, float] = {}
        up: list[str] = []
        unpriced: list[str] = []
        for run_id, cell_key in cells:
            for story in self._stories[run_id, cell_key]:
                until_s = self._until_s.get((run_id, cell_key, story.asked.number), now_s)
                start_s, end_s = rented_span(story, min(now_s, until_s))
                inside_s = max(0.0, min(end_s, within[1]) - max(start_s, within[0]))
                seconds = 0.0 if is_free(story) else inside_s
                price = story.asked.offer.price_usd_h
                if story.end is None:
                    up.append(story.asked.cluster)
                if price is None and seconds > 0:
                    unpriced.append(f"{story.asked.cluster} on {story.asked.offer.where}")
                by_cell[cell_key] = by_cell.get(cell_key, 0.0) + usd_of(price or 0.0, seconds)
        return Spent(by_cell, tuple(up), tuple(unpriced))


def _records(keys: Iterable[str]) -> dict[_Cell, list[str]]:
    """Placements' records by run and cell, from keys `runs/<run>/cells/<cell>/placements/<n>[.word].json`."""
    found: dict[_Cell, list[str]] = {}
    for key in keys:
        parts = key.split("/")
        if len(parts) == 6 and parts[4] == "placements":
            found.setdefault((parts[1], parts[3]), []).append(parts[5])
    return found
