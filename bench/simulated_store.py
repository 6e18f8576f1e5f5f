"""A store in memory whose ages follow a simulated clock."""

from __future__ import annotations

import bisect
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from warehouse.store.protocol import Seen


class SimulatedStore:
    """Objects in a dictionary; not thread-safe: the simulated clock runs one thread at a time."""

    url = "memory:night"
    storage_options: dict[str, str] | None = None

    def __init__(self, now_s: Callable[[], float]) -> None:
        self._now_s = now_s
        self._objects: dict[str, tuple[float, bytes]] = {}
        self._keys: list[str] = []
        self._stamp_s: float | None = None
        self.beating: dict[str, Callable[[], None]] = {}

    def uri(self, key: str) -> str:
        """A name for messages: nobody reads this store from outside."""
        return f"{self.url}/{key}"

    def put_new(self, key: str, data: bytes) -> bool:
        """Create `key` only if absent; False if it holds other bytes."""
        there = self._objects.get(key)
        if there is not None:
            return there[1] == data
        self.put(key, data)
        return True

    def put(self, key: str, data: bytes) -> None:
        """Write `key` whether or not it exists."""
        if key not in self._objects:
            bisect.insort(self._keys, key)
        self._objects[key] = (self._now_s() if self._stamp_s is None else self._stamp_s, data)

    def get(self, key: str) -> bytes | None:
        """The bytes of `key`; None if it is absent."""
        there = self._objects.get(key)
        return None if there is None else there[1]

    def list(self, prefix: str) -> list[str]:
        """Keys below the folder `prefix`, sorted."""
        first = bisect.bisect_left(self._keys, f"{prefix}/")
        return self._keys[first : bisect.bisect_left(self._keys, f"{prefix}0", first)]  # "0" comes after "/"

    def seen(self, prefix: str) -> Iterator[Seen]:
        """See `Store.seen`; nodes first write the heartbeats that are due."""
        for cell_root, beat in self.beating.items():
            if f"{prefix}/".startswith(f"{cell_root}/") or cell_root.startswith(f"{prefix}/"):
                beat()
        for key in self.list(prefix):
            moment_s, data = self._objects[key]
            yield Seen(key, f"{moment_s} {len(data)}", self._now_s() - moment_s)

    def age_s(self, key: str) -> float | None:
        """Simulated seconds since `key` was written; None if it is absent."""
        there = self._objects.get(key)
        return None if there is None else self._now_s() - there[0]

    def silence_s(self, key: str) -> float | None:
        """See `Store.silence_s`: this one is never away."""
        return self.age_s(key)

    def hurry(self) -> None:
        """Nothing to do: nobody waits for it."""

    def delete(self, key: str) -> None:
        """Nothing is ever deleted here."""
        raise NotImplementedError(f"the night deletes nothing, {key} neither")

    @contextmanager
    def written_at(self, moment_s: float) -> Iterator[None]:
        """Date what is put inside the block back to an earlier moment."""
        self._stamp_s = moment_s
        try:
            yield
        finally:
            self._stamp_s = None
