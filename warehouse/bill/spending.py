"""What a run, or the calendar month, has cost so far, read from the placements of a store.

Machines that are still up are counted until now. Asking is cheap enough for every look at a cluster: a placement that
is down is read once, one listing finds the new ones, and between two listings the clock carries the open ones on.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

from warehouse.bill.bill import is_free, month_of, rented_span
from warehouse.ledger import Ledger
from warehouse.placement import Placements, PlacementStory
from warehouse.price import usd_of
from warehouse.store import Store

RUN_REFRESH_S = 30.0
"""How old the listing of a run may be: at 10 USD/h, a new placement costs 8 cents before it is listed."""

STORE_REFRESH_S = 600.0
"""How old the listing of the whole store may be, which finds other runs' placements but lists every part too."""

READERS = 16
"""Cells read at the same time."""

ANY_TIME = (float("-inf"), float("inf"))


class Spent(NamedTuple):
    """Dollars by cell key.

    `up`: clusters whose end nobody has recorded. `unpriced`: clusters rented at an unknown price; they count as 0.
    """

    by_cell: Mapping[str, float]
    up: tuple[str, ...] = ()
    unpriced: tuple[str, ...] = ()

    @property
    def usd(self) -> float:
        """Dollars of all cells together."""
        return sum(self.by_cell.values(), 0.0)


NOTHING_SPENT = Spent({})


class Spending:
    """Reads a store's placements again and again; safe for many threads."""

    def __init__(self, store: Store, now_s: Callable[[], float]) -> None:
        """`now_s` returns seconds since 1970."""
        self._store = store
        self._now_s = now_s
        self._lock = threading.Lock()
        self._stories: dict[tuple[str, str], list[PlacementStory]] = {}
        self._read_at_s: dict[str, float] = {}

    def of_run(self, run_id: str, *, fresh: bool = False) -> Spent:
        """What one run has cost; `fresh` reads the store now."""
        with self._lock:
            self._refresh(f"runs/{run_id}/cells", 0.0 if fresh else RUN_REFRESH_S)
            cells = {key: stories for (run, key), stories in self._stories.items() if run == run_id}
            return _spent(cells.items(), self._now_s(), ANY_TIME)

    def of_month(self, *, fresh: bool = False) -> Spent:
        """What all runs of the store have cost in this calendar month, UTC; by cell, whatever its run."""
        with self._lock:
            self._refresh("runs", 0.0 if fresh else STORE_REFRESH_S)
            now_s = self._now_s()
            cells = [(key, stories) for (_, key), stories in self._stories.items()]
            return _spent(cells, now_s, month_of(now_s))

    def _refresh(self, prefix: str, max_age_s: float) -> None:
        """List `prefix` if that was last done too long ago, and read the cells with new or open placements."""
        now_s = self._now_s()
        if prefix in self._read_at_s and now_s - self._read_at_s[prefix] < max_age_s:
            return
        over = {cell: len(stories) for cell, stories in self._stories.items() if _all_down(stories)}
        counts = _placements(self._store.list(prefix))
        changed = [cell for cell, count in counts.items() if over.get(cell) != count]
        with ThreadPoolExecutor(READERS) as pool:
            self._stories |= zip(changed, pool.map(self._read, changed), strict=True)
        self._read_at_s[prefix] = now_s

    def _read(self, cell: tuple[str, str]) -> list[PlacementStory]:
        run_id, cell_key = cell
        return Placements(Ledger(self._store, run_id), cell_key).stories()


def _placements(keys: Iterable[str]) -> dict[tuple[str, str], int]:
    """Number of placements by run and cell, from keys `runs/<run>/cells/<cell>/placements/<n>[.word].json`."""
    counts: dict[tuple[str, str], int] = {}
    for key in keys:
        parts = key.split("/")
        if len(parts) == 6 and parts[4] == "placements" and parts[5].count(".") == 1:
            counts[parts[1], parts[3]] = counts.get((parts[1], parts[3]), 0) + 1
    return counts


def _all_down(stories: Iterable[PlacementStory]) -> bool:
    return all(story.end is not None for story in stories)


def _spent(cells: Iterable[tuple[str, list[PlacementStory]]], now_s: float, within: tuple[float, float]) -> Spent:
    """Dollars of the billed seconds inside a span of time."""
    by_cell: dict[str, float] = {}
    up: list[str] = []
    unpriced: list[str] = []
    for cell_key, stories in cells:
        for story in stories:
            start_s, end_s = rented_span(story, now_s)
            inside_s = max(0.0, min(end_s, within[1]) - max(start_s, within[0]))
            seconds = 0.0 if is_free(story) else inside_s
            price = story.asked.offer.price_usd_h
            if story.end is None:
                up.append(story.asked.cluster)
            if price is None and seconds > 0:
                unpriced.append(f"{story.asked.cluster} on {story.asked.offer.where}")
            by_cell[cell_key] = by_cell.get(cell_key, 0.0) + usd_of(price or 0.0, seconds)
    return Spent(by_cell, tuple(up), tuple(unpriced))
