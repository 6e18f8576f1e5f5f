"""A run's cells as listings show them, in the shape of a store: leases and ledgers read them as they read any other."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from warehouse.ledger.looks.bodies import Bodies
from warehouse.ledger.store import Store
from warehouse.ledger.store.protocol import Seen

UNSHOWN = "/parts"
"""Part of the keys that are left out: there are hundreds a cell, and nobody who looks asks for them."""

Shown = Callable[[str], Mapping[str, Seen]]
"""Given the folder of a cell, what was seen below it."""


def cell_root_of(key: str) -> str:
    """Folder of the cell that a key or a folder `runs/<run>/cells/<cell>/...` belongs to."""
    return "/".join(key.split("/", 4)[:4])


class View:
    """A store whose keys below one folder of cells are those of the last look; all else goes to the store itself."""

    def __init__(self, store: Store, cells: str, bodies: Bodies, shown: Shown) -> None:
        """Ask nothing yet.

        Args:
            store: what is looked at.
            cells: folder of the run's cells.
            bodies: what was read so far.
            shown: looks at a cell.
        """
        self._store, self._cells, self._bodies, self._shown = store, f"{cells}/", bodies, shown
        self.url, self.storage_options = store.url, store.storage_options
        self.uri, self.put, self.put_new, self.delete = store.uri, store.put, store.put_new, store.delete
        self.age_s, self.hurry = store.age_s, store.hurry

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
        """Seconds of silence when the look was made: what has happened since, nobody has seen."""
        if not self._is_shown(key):
            return self._store.silence_s(key)
        seen = self._shown(cell_root_of(key)).get(key)
        return None if seen is None else seen.silence_s

    def _is_shown(self, key: str) -> bool:
        return key.startswith(self._cells) and UNSHOWN not in key
