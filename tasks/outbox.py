"""What a node has measured and its store has not taken: on the node's disk, in order, until the store is back.

A step writes as if to the store. While that answers, a write returns when it is stored. While it is away, writes go to
a folder and measuring goes on. They go up in their order, so a commit comes after its parts.
"""

from __future__ import annotations

import os
import threading
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path

from configs.errors import SpecsweepError
from warehouse.ledger.commits import Ledger
from warehouse.ledger.outcomes import Ended
from warehouse.ledger.store import Store, StoreAway
from warehouse.ledger.store.identity import store_id
from warehouse.ledger.store.local import LocalStore

BOUND_VARIABLE = "SPECSWEEP_OUTBOX_MB"
"""Environment variable: how much may wait on the node's disk, 10^6 bytes. With more, measuring waits for the store."""

BOUND_MB = 1000.0  # unless that variable says otherwise: days of the longest evaluations that we have

COMMIT = "/commit.json"


def outbox_folder(workdir: Path, store: Store) -> Path:
    """Where letters to a store wait, in a cell's folder on this machine. Reads the store's id."""
    return workdir / f"outbox-{store_id(store)[:12]}"


def send_left(store: Store, folder: Path) -> None:
    """Send what an earlier runner of the cell left on this disk, commits last: none names what is not there.

    Where somebody else has measured the cell since, their commits stand.
    """
    left = LocalStore(folder)
    for key in sorted(left.list(""), key=lambda key: (key.endswith(COMMIT), key)):
        data = left.get(key)
        if data is not None:
            store.put_new(key, data)
            left.delete(key)


def bound_mb() -> float:
    """How much may wait, 10^6 bytes. Raises SpecsweepError: what the variable says is no amount."""
    said = os.environ.get(BOUND_VARIABLE, "")
    try:
        most_mb = float(said or BOUND_MB)
    except ValueError:
        most_mb = -1.0
    if not 0 <= most_mb < float("inf"):
        raise SpecsweepError(f"{BOUND_VARIABLE}={said!r}: give 10^6 bytes, such as {BOUND_MB:.0f}")
    return most_mb


DIRECT_S = 5.0  # how long a write waits for the store before it goes to the disk; the engine idles meanwhile
AGAIN_S = 1.0  # pause before a store that was away for longer than its own patience is asked again


class CellLost(SpecsweepError):
    """Somebody else took the cell while the store was away; what was measured for it meanwhile is not committed."""

    exit_code = Ended.SUPERSEDED.exit_code


class _Letter:
    """One object on its way. `data` is None once it lies on the disk; `created` is the store's answer."""

    def __init__(self, key: str, data: bytes) -> None:
        self.key, self.bytes, self.written_at = key, len(data), time.monotonic()
        self.data: bytes | None = data
        self.created: bool | None = None


class Outbox:
    """A store, as the steps of one attempt see it, that never makes them wait for long. One thread sends.

    What lies below the cell's own steps is listed once, when the cell's lease is held: nobody else writes there.
    """

    def __init__(
        self,
        store: Store,
        folder: Path,
        ledger: Ledger,
        cell_key: str,
        is_ours: Callable[[], bool],
        kept: Callable[[float], None],
    ) -> None:
        """List what earlier attempts left, and read what steps of this run share.

        `is_ours` asks the store whether the cell is still ours. `kept` gets the moment (`time.monotonic`) until which
        the store has the steps' rows.
        """
        self._store, self._folder, self._is_ours, self._kept = store, folder, is_ours, kept
        self.url, self.location, self.storage_options = store.url, store.location, store.storage_options
        self.uri, self.put, self.seen, self.delete = store.uri, store.put, store.seen, store.delete  # at once
        self.age_s, self.silence_s, self.clock_skew_s = store.age_s, store.silence_s, store.clock_skew_s
        self._disk, self._most_bytes = LocalStore(folder), 1e6 * bound_mb()
        self._root = f"{ledger.cell_root(cell_key)}/steps/"
        self._known = set(store.list(self._root.rstrip("/")))
        self._prompts = f"{ledger.root}/prompts/"
        shared = [f"{ledger.root}/plan.json", *store.list(self._prompts.rstrip("/"))]
        self._shared = {key: store.get(key) for key in shared}
        self._queue: deque[_Letter] = deque()
        self._guard = threading.Condition()
        self._is_away = self._is_hurried = False
        self._late_bytes = self._late = 0
        self._awaited_s: float | None = None
        self._failure: SpecsweepError | None = None
        threading.Thread(target=self._run, name="outbox", daemon=True).start()

    def put_new(self, key: str, data: bytes) -> bool:
        """Create `key` only if absent (see `Store.put_new`); True, too, where only sending it will tell.

        Raises CellLost: it is somebody else's by now. StoreError: the store refuses it, or this disk is full.
        """
        letter = _Letter(key, data)
        with self._guard:
            self._raise_failure()
            self._queue.append(letter)
            self._known.add(key)
            self._guard.notify_all()
            if not self._is_away:
                self._guard.wait_for(lambda: letter.created is not None or self._failure, DIRECT_S)
            if letter.created is None:
                self._keep(letter)
            return letter.created is not False

    def _keep(self, letter: _Letter) -> None:
        """Write a letter to the disk, when there is room for it."""
        if not self._is_away and self._failure is None:
            most = f"{self._most_bytes / 1e6:g} MB ({BOUND_VARIABLE})"
            print(f"measuring goes on; what the store did not take lies in {self._folder}, up to {most}", flush=True)
        self._is_away = True
        if self._late_bytes and self._late_bytes + letter.bytes > self._most_bytes:
            # nothing more can be measured: from now on the store's own patience counts
            self._awaited_s = self._awaited_s or time.monotonic()
            self._guard.wait_for(
                lambda: self._failure or not self._late_bytes or self._late_bytes + letter.bytes <= self._most_bytes
            )
        self._raise_failure()
        if letter.created is None and letter.data is not None:
            self._disk.put(letter.key, letter.data)
            letter.data = None
            self._late_bytes += letter.bytes

    def flush(self) -> None:
        """Return when everything is stored; the store is waited for as long as its patience says.

        Raises CellLost: it is somebody else's by now. StoreError: what could not be stored stays on this disk.
        """
        with self._guard:
            self._awaited_s = self._awaited_s or time.monotonic()
            self._guard.wait_for(lambda: self._failure or not self._queue)
            self._raise_failure()

    def drop(self) -> None:
        """Send nothing more: the cell is somebody else's."""
        with self._guard:
            self._fail(CellLost("another runner took the cell over"))

    def hurry(self) -> None:
        """See `Store.hurry`."""
        self._is_hurried = True
        self._store.hurry()

    def _raise_failure(self) -> None:
        if self._failure is not None:
            raise self._failure

    def _fail(self, error: SpecsweepError) -> None:
        self._failure = self._failure or error
        if isinstance(self._failure, CellLost):  # the next runner on this machine must not send it
            for letter in self._queue:
                self._disk.delete(letter.key)
        self._guard.notify_all()

    def _run(self) -> None:
        """Send letter by letter, as long as the store does not refuse one."""
        while self._failure is None:
            with self._guard:
                self._guard.wait_for(lambda: self._queue or self._failure)
            tried_s = time.monotonic()
            try:
                if self._failure is None:
                    self._sent(self._queue[0])
            except StoreAway as error:
                with self._guard:
                    waited = self._awaited_s is not None and tried_s >= self._awaited_s
                    if waited or self._is_hurried:
                        self._store.hurry()
                        self._fail(error)
                    self._guard.wait(AGAIN_S)
            except SpecsweepError as error:
                with self._guard:
                    self._fail(error)
            except BaseException as error:
                with self._guard:
                    self._fail(SpecsweepError(f"can't send what was measured: {type(error).__name__}: {error}"))
                raise

    def _sent(self, letter: _Letter) -> None:
        data = letter.data
        if data is None:
            if letter.key.endswith(COMMIT) and not self._is_ours():
                raise CellLost("another runner took the cell over while the store was away")
            data = self._disk.get(letter.key)
            assert data is not None, "nobody else touches this folder"
        created = self._store.put_new(letter.key, data)
        with self._guard:
            self._queue.popleft()
            letter.created = created
            if letter.key.startswith(self._root):
                self._kept(letter.written_at)
            if letter.data is None:
                self._disk.delete(letter.key)
                self._late_bytes -= letter.bytes
                self._late += 1
            if not self._queue and self._is_away:
                print(f"the store is back and has {self._late} objects that had to wait", flush=True)
                self._is_away, self._late, self._awaited_s = False, 0, None
            self._guard.notify_all()

    @property
    def is_empty(self) -> bool:
        """Whether the store has everything."""
        return not self._queue

    def get(self, key: str) -> bytes | None:
        """The object's bytes, wherever it is; None: there is no such key."""
        with self._guard:
            for letter in self._queue:
                if letter.key == key:
                    return self._disk.get(key) if letter.data is None else letter.data
        if key in self._shared:
            return self._shared[key]
        is_nowhere = key not in self._known and key.startswith((self._root, self._prompts))
        return None if is_nowhere else self._store.get(key)

    def list(self, prefix: str) -> list[str]:
        """Keys below the folder `prefix`, sorted."""
        folder = prefix.rstrip("/") + "/"
        if not folder.startswith(self._root):
            return self._store.list(prefix)
        with self._guard:
            return sorted(key for key in self._known if key.startswith(folder))
