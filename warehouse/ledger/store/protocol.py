"""What a store can do, all resting on `put_new`, create only if absent; and patience with one that is away.

Of objects that are numbered in their names, the one with the highest number is valid.
"""

from __future__ import annotations

import itertools
import math
import os
import random
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple, Protocol, TypeVar

from configs.errors import SpecsweepError
from warehouse.ledger.clock import duration


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
    def location(self) -> str:
        """Where it is: `url` and the server behind it, whatever way leads there. A copy has another one."""

    @property
    def storage_options(self) -> dict[str, str] | None:
        """What polars needs to read `uri(key)`; None for a local folder."""

    def uri(self, key: str) -> str:
        """Where `key` can be read by polars, duckdb or pandas."""

    def put_new(self, key: str, data: bytes) -> bool:
        """Create `key` only if absent. False: another object with other bytes is already there.

        StoreAway: it does not answer; whether the key was written is not known, and asking again is safe.
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

    def clock_skew_s(self) -> float:
        """Seconds by which the store's clock is ahead of ours; no finer than a second at some stores."""

    def hurry(self) -> None:
        """Wait for seconds only from now on, where it is away: the process is asked to end."""

    def delete(self, key: str) -> None:
        """Remove `key`. Used by the self-test on its own probe objects, and by nothing else."""


AWAY_VARIABLE = "SPECSWEEP_STORE_AWAY_S"
"""Environment variable: for how long a store that was there may be away before what needs it fails."""

AWAY_S = 300.0
"""Unless that variable says otherwise. A network that is being changed and a bucket that answers SlowDown are back
within minutes. A process that waits is billed for a GPU meanwhile, and one that gives up loses the GPU."""

NODE_AWAY_S = 3600.0
"""The same for a node, whose store answered its flow. What the node has measured and can't store yet costs more than
its waiting, which the flow's budget bounds."""

UNSEEN_S = 20.0
"""For a store that has not answered yet: its address, its network or its server is more likely wrong than away."""

HURRIED_S = 10.0  # for a process that is asked to end: what it rented costs money until it is down
FEWEST_TRIES = 3  # however long the first of them hung

FIRST_PAUSE_S, LONGEST_PAUSE_S, NAP_S = 0.1, 5.0, 0.25

TOLD_AFTER_S = 3.0  # absences shorter than this are not reported

_Answer = TypeVar("_Answer")


class Passing(Exception):
    """An answer, or none, that may be another one soon; the text says which."""


class Patience:
    """What the threads that share a store wait with: they tell of an absence, and of its end, once together."""

    def __init__(self, url: str, *, is_known: bool) -> None:
        """`is_known`: it answered another process before (a node's store), so that it is away and not misspelt."""
        self._url, self._is_known = url, is_known
        self._answered_s = self._back_s = -math.inf
        self._is_told = False
        self._away_s = _away_s(NODE_AWAY_S if is_known else AWAY_S)
        self._guard, self._hurried = threading.Lock(), threading.Event()

    def ask(self, call: Callable[[], _Answer]) -> _Answer:
        """The answer of `call`, asked again while it raises `Passing`, which is raised when patience is over.

        Each caller waits by its own clock: many that wait at once don't use up each other's tries.
        """
        since_s, pause_s = time.monotonic(), FIRST_PAUSE_S
        for tried in itertools.count(1):
            try:
                answer = call()
            except Passing as error:
                away_s, most_s = time.monotonic() - since_s, self._most_s()
                if away_s >= min(TOLD_AFTER_S, most_s):
                    self._tell_away(error, since_s, most_s)
                if away_s >= most_s and (tried >= FEWEST_TRIES or self._hurried.is_set()):
                    raise
                self._pause(pause_s * random.uniform(0.5, 1.0))
                pause_s = min(2 * pause_s, LONGEST_PAUSE_S)
            else:
                self._came(since_s)
                return answer
        raise AssertionError("it is tried until it answers or patience ends")

    def hurry(self) -> None:
        """Wait for `HURRIED_S` at most from now on, also in threads that wait already: the process is asked to end."""
        self._hurried.set()

    def back_s(self) -> float:
        """Seconds since the store's last return; infinite if it never was away."""
        with self._guard:
            return time.monotonic() - self._back_s

    def _most_s(self) -> float:
        seen = self._is_known or self._answered_s > -math.inf
        most_s = self._away_s if seen else min(UNSEEN_S, self._away_s)
        return min(HURRIED_S, most_s) if self._hurried.is_set() else most_s

    def _pause(self, seconds: float) -> None:
        """In short naps, so that a process that is asked to end while it sleeps wakes up."""
        ends_s, was_hurried = time.monotonic() + seconds, self._hurried.is_set()
        while (left_s := ends_s - time.monotonic()) > 0 and self._hurried.is_set() == was_hurried:
            time.sleep(min(left_s, NAP_S))

    def _tell_away(self, error: Passing, since_s: float, most_s: float) -> None:
        """Once per absence, which lasts only while no request is answered: one request that waits proves nothing."""
        with self._guard:
            if not self._is_told and self._answered_s <= since_s:
                self._is_told = True
                _say(f"the store {self._url} is away ({error}): trying for {duration(most_s)}, nothing is lost")

    def _came(self, since_s: float) -> None:
        with self._guard:
            self._answered_s = time.monotonic()
            if self._is_told:
                self._is_told, self._back_s = False, self._answered_s
                _say(f"the store {self._url} is back after {duration(self._answered_s - since_s)}")


def until_back(call: Callable[[], _Answer], pause: Callable[[], None]) -> _Answer:
    """The answer of `call`, however long its store is away; `pause` is waited for whenever patience is over."""
    while True:
        try:
            return call()
        except StoreAway:
            pause()


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def _away_s(unless_told: float) -> float:
    said = os.environ.get(AWAY_VARIABLE, "")
    try:
        seconds = float(said or unless_told)
    except ValueError:
        seconds = -1.0
    if not 0 <= seconds < math.inf:
        raise SpecsweepError(f"{AWAY_VARIABLE}={said!r}: give seconds, such as {AWAY_S:.0f}")
    return seconds
