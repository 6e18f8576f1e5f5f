"""Looking at the cells of a run again and again: how often, and one listing for all threads of a flow that ask.

A listing of the run has a page of a thousand keys for every few cells, one of a cell is one page. Whichever is cheaper
for the cells that are due is made, once, however many threads ask meanwhile.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from typing import NamedTuple

from warehouse.ledger.commits import Ledger
from warehouse.ledger.store import Store
from warehouse.ledger.store.protocol import Seen

LONGEST_S = 30.0
"""Longest pause between two looks at a rented node. What a look shows is at most as old as the pause before it, so
whatever happens is seen within 60 s."""

SHARE_OF_AGE = 0.05
"""Pause as a share of the time for which nothing has happened: 3 s in the first minute, 30 s after ten minutes."""


def pause_s(quiet_s: float, shortest_s: float, longest_s: float) -> float:
    """Seconds until the next look at something that has been `quiet_s` as it is."""
    return max(shortest_s, min(longest_s, quiet_s * SHARE_OF_AGE))


class Bodies:
    """What was read of each key, with the tag that it had."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._guard = threading.Lock()
        self._kept: dict[str, tuple[str, bytes]] = {}

    def of(self, seen: Seen) -> bytes | None:
        """The object's bytes, or newer ones if it was replaced since; None: it is gone."""
        with self._guard:
            tag, data = self._kept.get(seen.key, ("", None))
        if data is None or tag != seen.tag:
            data = self._store.get(seen.key)
            if data is not None:
                with self._guard:
                    self._kept[seen.key] = seen.tag, data
        return data

    def forget(self, prefix: str) -> None:
        """Drop what is below a folder."""
        with self._guard:
            for key in [key for key in self._kept if key.startswith(f"{prefix}/")]:
                del self._kept[key]


UNSHOWN = "/parts"  # part of the keys that are left out: there are hundreds per cell, and no look asks for them
Shown = Callable[[str], Mapping[str, Seen]]  # given the folder of a cell, what was seen below it


def cell_root_of(key: str) -> str:
    """Folder of the cell that a key or a folder `runs/<run>/cells/<cell>/...` belongs to."""
    return "/".join(key.split("/", 4)[:4])


class View:
    """A store whose keys below one folder of cells are those of the last look; all else goes to the store itself."""

    def __init__(self, store: Store, cells: str, bodies: Bodies, shown: Shown) -> None:
        """Ask nothing yet; `cells` is the folder of the run's cells, and `shown` looks at one."""
        self._store, self._cells, self._bodies, self._shown = store, f"{cells}/", bodies, shown
        self.url, self.location, self.storage_options = store.url, store.location, store.storage_options
        self.uri, self.put, self.put_new, self.delete = store.uri, store.put, store.put_new, store.delete
        self.age_s, self.hurry, self.clock_skew_s = store.age_s, store.hurry, store.clock_skew_s

    def get(self, key: str) -> bytes | None:
        """The object's bytes, fetched if the last look showed other ones; None: it showed no such key."""
        if not self._is_shown(key):
            return self._store.get(key)
        seen = self._shown(cell_root_of(key)).get(key)
        return None if seen is None else self._bodies.of(seen)

    def list(self, prefix: str) -> list[str]:
        """Keys below a folder of a cell, sorted, as the last look showed them."""
        return [seen.key for seen in self.seen(prefix)] if self._is_shown(prefix) else self._store.list(prefix)

    def seen(self, prefix: str) -> Iterator[Seen]:
        """See `Store.seen`."""
        if not self._is_shown(prefix):
            yield from self._store.seen(prefix)
            return
        shown = self._shown(cell_root_of(prefix))
        yield from (shown[key] for key in sorted(shown) if key.startswith(f"{prefix}/"))

    def silence_s(self, key: str) -> float | None:
        """Seconds of silence when the look was made: what has happened since is not known."""
        if not self._is_shown(key):
            return self._store.silence_s(key)
        seen = self._shown(cell_root_of(key)).get(key)
        return None if seen is None else seen.silence_s

    def _is_shown(self, key: str) -> bool:
        return key.startswith(self._cells) and UNSHOWN not in key


PAGE_KEYS = 1000  # keys that one request lists, at S3 and Google


class CellLook(NamedTuple):
    """One cell as a listing that began at `at_s` showed it."""

    at_s: float
    seen: Mapping[str, Seen]


class RunLook(NamedTuple):
    """The shown keys of a run, by a listing that began at `at_s`."""

    at_s: float
    keys: list[str]


class SharedLook:
    """The looks of one flow at one run. Only for looking: code that decides something asks the store itself."""

    def __init__(self, ledger: Ledger) -> None:
        """Nothing is listed yet."""
        self.ledger, self.root = ledger, f"{ledger.root}/cells"
        self._bodies = Bodies(ledger.store)
        self._guard = threading.Lock()
        self._looks: dict[str, CellLook] = {}
        self._wanted_s: dict[str, float] = {}
        self._flights: dict[str, Future[None]] = {}
        self._pages: int | None = None
        self._run: RunLook | None = None

    def at(self, at_most_s: float) -> Ledger:
        """The run as listings that are at most so old show it."""
        view = View(self.ledger.store, self.root, self._bodies, lambda cell_root: self.cell(cell_root, at_most_s).seen)
        return Ledger(view, self.ledger.run_id, self.ledger.clock)

    def cell(self, cell_root: str, at_most_s: float) -> CellLook:
        """One cell, listed anew if the last look at it is older than `at_most_s`."""
        with self._guard:
            self._wanted_s[cell_root] = at_most_s
            look = self._fresh(cell_root)
            if look is not None:
                return look
            scope = self.root if self._is_run_cheaper() else cell_root
            flight, is_mine = self._boarded(scope)
        if is_mine:
            self._fly(scope, flight)
        flight.result()
        with self._guard:
            return self._looks.get(cell_root) or CellLook(self._now_s(), {})

    def keys(self, at_most_s: float) -> tuple[list[str], float]:
        """The shown keys of the whole run, and how many seconds ago they were listed: `at_most_s`, or just now."""
        with self._guard:
            run = self._run
            if run is not None and self._now_s() - run.at_s <= at_most_s:
                return run.keys, self._now_s() - run.at_s
            flight, is_mine = self._boarded(self.root)
        if is_mine:
            self._fly(self.root, flight)
        flight.result()
        with self._guard:
            assert self._run is not None, "it was listed"
            return self._run.keys, self._now_s() - self._run.at_s

    def _boarded(self, scope: str) -> tuple[Future[None], bool]:
        """The listing that is under way, or a new one, and whether it is the caller's to make."""
        flight = self._flights.get(scope) or self._flights.get(self.root)
        if flight is not None:
            return flight, False
        self._flights[scope] = Future[None]()
        return self._flights[scope], True

    def leave(self, cell_root: str) -> None:
        """This cell is not looked at any more."""
        with self._guard:
            self._wanted_s.pop(cell_root, None)
            self._looks.pop(cell_root, None)
        self._bodies.forget(cell_root)

    def _fresh(self, cell_root: str) -> CellLook | None:
        look = self._looks.get(cell_root)
        return look if look is not None and self._now_s() - look.at_s <= self._wanted_s[cell_root] else None

    def _is_run_cheaper(self) -> bool:
        """Whether as many cells are due as a listing of the run has pages."""
        due = sum(self._fresh(cell_root) is None for cell_root in self._wanted_s)
        return self._pages is None or due >= self._pages

    def _fly(self, scope: str, flight: Future[None]) -> None:
        """List for all who wait; they get what it fails with, too."""
        at_s = self._now_s()
        try:
            keys, found = self._listed(scope)
        except BaseException as error:
            with self._guard:
                del self._flights[scope]
            flight.set_exception(error)
            raise
        with self._guard:
            del self._flights[scope]
            if scope == self.root:
                self._pages = 1 + keys // PAGE_KEYS
                self._run = RunLook(at_s, [key for seen in found.values() for key in seen])
            for cell_root in {*found, *self._wanted_s} if scope == self.root else [scope]:
                self._looks[cell_root] = CellLook(at_s, found.get(cell_root, {}))
        flight.set_result(None)

    def _listed(self, scope: str) -> tuple[int, dict[str, dict[str, Seen]]]:
        keys, found = 0, dict[str, dict[str, Seen]]()
        for seen in self.ledger.store.seen(scope):
            keys += 1
            if UNSHOWN not in seen.key:
                found.setdefault(cell_root_of(seen.key), {})[seen.key] = seen
        return keys, found

    def _now_s(self) -> float:
        return self.ledger.clock.now_s()
