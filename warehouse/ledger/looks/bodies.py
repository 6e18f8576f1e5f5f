"""Bodies of objects that a listing has shown: fetched once, and again when their tag has changed."""

from __future__ import annotations

import threading

from warehouse.ledger.store import Store
from warehouse.ledger.store.protocol import Seen


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
