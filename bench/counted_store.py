"""A store that counts what it is asked, in requests as S3 bills them: a listing is one for each thousand keys."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator

from warehouse.looks.shared import PAGE_KEYS
from warehouse.store import Store
from warehouse.store.protocol import Seen


class CountedStore:
    """Another store, with every request counted by its kind."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._guard = threading.Lock()
        self.requests: Counter[str] = Counter()
        self.url, self.storage_options, self.uri, self.hurry = store.url, store.storage_options, store.uri, store.hurry

    def put_new(self, key: str, data: bytes) -> bool:
        """See `Store.put_new`."""
        self._count("put")
        return self._store.put_new(key, data)

    def put(self, key: str, data: bytes) -> None:
        """See `Store.put`."""
        self._count("put")
        self._store.put(key, data)

    def get(self, key: str) -> bytes | None:
        """See `Store.get`."""
        self._count("get")
        return self._store.get(key)

    def list(self, prefix: str) -> list[str]:
        """See `Store.list`."""
        found = self._store.list(prefix)
        self._count("list", 1 + len(found) // PAGE_KEYS)
        return found

    def seen(self, prefix: str) -> Iterator[Seen]:
        """See `Store.seen`."""
        for number, seen in enumerate(self._store.seen(prefix)):
            if number % PAGE_KEYS == 0:
                self._count("list")
            yield seen

    def age_s(self, key: str) -> float | None:
        """See `Store.age_s`."""
        self._count("head")
        return self._store.age_s(key)

    def silence_s(self, key: str) -> float | None:
        """See `Store.silence_s`."""
        self._count("head")
        return self._store.silence_s(key)

    def delete(self, key: str) -> None:
        """See `Store.delete`."""
        self._count("delete")
        self._store.delete(key)

    def _count(self, kind: str, requests: int = 1) -> None:
        with self._guard:
            self.requests[kind] += requests
