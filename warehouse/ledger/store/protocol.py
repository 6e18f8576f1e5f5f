"""What a store can do. Everything rests on one primitive, `put_new`: create only if absent.

Of objects that are numbered in their names, the one with the highest number is valid.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple, Protocol

from configs.errors import SpecsweepError


def numbers(keys: Iterable[str], key_of: Callable[[int], str]) -> list[int]:
    """Numbers that a listing shows, in order; what people leave next to them (`000002 (copy).json`) is ignored."""
    heads = ((key, key.rsplit("/", 1)[-1].partition(".")[0]) for key in keys)
    found = ((key, int(head)) for key, head in heads if head.isdecimal())
    return sorted(number for key, number in found if key_of(number) == key)


class StoreError(SpecsweepError):
    """The store can't do what was asked; the text says where, why and what to do."""


class StoreAway(StoreError):
    """The store has not answered for as long as we wait for it: what it holds is unknown, and nothing follows."""


class Seen(NamedTuple):
    """An object as a listing shows it: `tag` changes with its bytes, `silence_s` is as in `Store.silence_s`."""

    key: str
    tag: str
    silence_s: float


class Store(Protocol):
    """Bytes under keys. Keys are relative, `/`-separated, and never start with `/`."""

    @property
    def url(self) -> str:
        """The address this store was opened with."""

    @property
    def storage_options(self) -> dict[str, str] | None:
        """What polars needs to read `uri(key)`; None for a local folder."""

    def uri(self, key: str) -> str:
        """Where `key` can be read by polars, duckdb or pandas."""

    def put_new(self, key: str, data: bytes) -> bool:
        """Create `key` only if absent. False: another object with other bytes is already there.

        Raises:
            StoreAway: it does not answer; whether the key was written is not known, and asking again is safe.
            StoreError: the store can't be written.
        """

    def put(self, key: str, data: bytes) -> None:
        """Write `key` whether or not it exists: for heartbeats, stop requests, and copies of what is kept elsewhere."""

    def get(self, key: str) -> bytes | None:
        """The object's bytes; None: there is no such key."""

    def list(self, prefix: str) -> list[str]:
        """Keys below `prefix`, sorted. May lag behind writes on some stores."""

    def seen(self, prefix: str) -> Iterator[Seen]:
        """What `list` lists, in no particular order and asked for page by page, with what a listing says of each."""

    def age_s(self, key: str) -> float | None:
        """Seconds since `key` was written, by the store's own clock; None: there is no such key."""

    def silence_s(self, key: str) -> float | None:
        """As `age_s`, for keys that show that a process lives; if the store was away, it counts from its return.

        No process could have written meanwhile: the silence was the store's, and says nothing about them.
        """

    def hurry(self) -> None:
        """Wait for seconds only from now on, where it is away: the process is asked to end."""

    def delete(self, key: str) -> None:
        """Remove `key`. Used by the self-test on its own probe objects, and by nothing else."""
