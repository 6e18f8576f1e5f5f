"""What a store can do. Everything rests on one primitive, `put_new`: create only if absent.

Of objects that are numbered in their names, the highest number is the last word.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple, Protocol

from configs.errors import SpecsweepError


def numbers(keys: Iterable[str], key_of: Callable[[int], str]) -> list[int]:
    """Numbers that a listing shows, in order; what people leave beside them (`000002 (copy).json`) is none of ours."""
    heads = ((key, key.rsplit("/", 1)[-1].partition(".")[0]) for key in keys)
    found = ((key, int(head)) for key, head in heads if head.isdecimal())
    return sorted(number for key, number in found if key_of(number) == key)


class StoreError(SpecsweepError):
    """The store can't do what was asked; the text says where, why and what to do."""


class StoreAway(StoreError):
    """The store has not answered for as long as we wait for it: nobody knows what it holds, and nothing follows."""


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
        """What `list` lists, in no particular order and asked for page by page, with what a listing tells of each."""

    def age_s(self, key: str) -> float | None:
        """Seconds since `key` was written, by the store's own clock; None: there is no such key."""

    def silence_s(self, key: str) -> float | None:
        """As `age_s`, for keys that show that somebody lives; a store that was away counts from its return.

        Nobody could have written meanwhile: that was the store's silence, and no witness of theirs.
        """

    def hurry(self) -> None:
        """Wait for seconds only from now on, where it is away: the process is asked to end."""

    def delete(self, key: str) -> None:
        """Remove `key`. Used by the self-test on its own probe objects, and by nothing else."""
