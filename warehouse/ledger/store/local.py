"""A folder as a store: temporary file, fsync, then `link`, which the kernel refuses when the name is taken."""

from __future__ import annotations

import errno
import math
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TypeVar

from warehouse.ledger.store.protocol import Passing, Patience, Seen, StoreAway, StoreError

_Answer = TypeVar("_Answer")

HIDDEN = "."
"""How names begin that are never listed: a file manager's, say `.DS_Store`, and ours below. No key of ours has one."""

TEMPORARY_PREFIX = f"{HIDDEN}tmp-"  # files being written; a killed writer leaves nothing a reader could see

AWAY = (errno.EIO, errno.ESTALE, errno.ETIMEDOUT, errno.ENOTCONN, errno.EHOSTDOWN, errno.EHOSTUNREACH)
"""What a shared file system says while its server is away."""


class LocalStore:
    """Objects as files below one folder. Safe for many processes, of many machines where the file system is shared."""

    storage_options: dict[str, str] | None = None

    def __init__(self, root: Path, *, patience: Patience | None = None) -> None:
        """`root` is made on the first write; `patience`: with an absence of its file system, None: there is none."""
        self.root, self._patience = root.expanduser().absolute(), patience

    @property
    def url(self) -> str:
        """The folder's absolute path."""
        return str(self.root)

    @property
    def location(self) -> str:
        """The folder itself, also where a link leads to it. Another machine may have another folder of this path."""
        return str(self.root.resolve())

    def uri(self, key: str) -> str:
        """The file's absolute path."""
        return str(self._path(key))

    def put_new(self, key: str, data: bytes) -> bool:
        """Create `key` only if absent (see `Store.put_new`)."""
        path = self._path(key)

        def create() -> bool:
            with self._written(path, data) as temporary:
                try:
                    os.link(temporary, path)
                except FileExistsError:
                    return False
                _sync_folder(path.parent)
            return True

        return self._asked(create) or self.get(key) == data

    def put(self, key: str, data: bytes) -> None:
        """Write `key` atomically, replacing what is there."""
        path = self._path(key)

        def write() -> None:
            with self._written(path, data) as temporary:
                temporary.rename(path)

        self._asked(write)

    def get(self, key: str) -> bytes | None:
        """The file's bytes; None: there is no such file."""
        path = self._path(key)

        def read() -> bytes:
            with _said("read", path):
                return path.read_bytes()

        try:
            return self._asked(read)
        except FileNotFoundError:
            return None

    def list(self, prefix: str) -> list[str]:
        """Keys below the folder `prefix`, sorted."""
        return self._asked(lambda: sorted(str(path.relative_to(self.root)) for path in self._files(prefix)))

    def seen(self, prefix: str) -> Iterator[Seen]:
        """See `Store.seen`."""
        yield from self._asked(lambda: [*self._looked(prefix)])

    def _looked(self, prefix: str) -> Iterator[Seen]:
        now_s, back_s = self._now_s(), self._back_s()
        for path in self._files(prefix):
            with suppress(FileNotFoundError), _said("read", path):  # removed since
                stat = path.stat()
                tag = f"{stat.st_ino}-{stat.st_mtime_ns}-{stat.st_size}"
                yield Seen(str(path.relative_to(self.root)), tag, min(now_s - stat.st_mtime, back_s))

    def _files(self, prefix: str) -> Iterator[Path]:
        # unless we raise, a folder that can't be read would be taken for an empty one, and its cells for free ones
        for folder, folders, names in os.walk(self._path(prefix), onerror=_unless_gone):
            folders[:] = (name for name in folders if not name.startswith(HIDDEN))
            yield from (Path(folder, name) for name in names if not name.startswith(HIDDEN))

    def age_s(self, key: str) -> float | None:
        """Seconds since the file was written, by the clock of its file system; None: no such file."""
        path = self._path(key)

        def written_s() -> float:
            with _said("read", path):
                return path.stat().st_mtime

        try:
            at_s = self._asked(written_s)
        except FileNotFoundError:
            return None
        return self._now_s() - at_s

    def silence_s(self, key: str) -> float | None:
        """See `Store.silence_s`."""
        age_s = self.age_s(key)
        return None if age_s is None else min(age_s, self._back_s())

    def clock_skew_s(self) -> float:
        """See `Store.clock_skew_s`: a shared file system has a server's clock."""
        return self._now_s() - time.time()

    def hurry(self) -> None:
        """See `Store.hurry`."""
        if self._patience is not None:
            self._patience.hurry()

    def delete(self, key: str) -> None:
        """Remove the file if it is there, and its folder if nothing else is in it."""
        path = self._path(key)

        def remove() -> None:
            with _said("delete", path):
                path.unlink(missing_ok=True)
                if path.parent != self.root and path.parent.exists() and not any(path.parent.iterdir()):
                    path.parent.rmdir()

        self._asked(remove)

    def _path(self, key: str) -> Path:
        """Where a key's file is. StoreError: it would lie outside the folder."""
        if key.startswith("/") or ".." in key.split("/"):
            raise StoreError(f"{key!r} leads out of the store {self.root}: a key is relative, and has no '..'")
        return self.root / key

    def _asked(self, call: Callable[[], _Answer]) -> _Answer:
        """What `call` returns, asked again while the file system is away, as far as there is patience."""
        if self._patience is None:
            return call()

        def once() -> _Answer:
            try:
                return call()
            except StoreAway as error:
                raise Passing(str(error)) from error

        try:
            return self._patience.ask(once)
        except Passing as error:
            raise StoreAway(str(error)) from error

    def _back_s(self) -> float:
        return math.inf if self._patience is None else self._patience.back_s()

    def _now_s(self) -> float:
        """Now, as the file system stamps it: a shared one (Slurm) has a server's clock, and the reader its own."""
        try:
            with tempfile.TemporaryFile(dir=self.root, prefix=TEMPORARY_PREFIX) as touched:
                return os.fstat(touched.fileno()).st_mtime
        except OSError:  # a folder that may only be read has no other clock than ours
            return time.time()

    @contextmanager
    def _written(self, path: Path, data: bytes) -> Iterator[Path]:
        """A synced temporary file next to `path` with `data` in it; gone afterwards unless it was renamed."""
        temporary: Path | None = None
        try:
            with _said("write", path):
                path.parent.mkdir(parents=True, exist_ok=True)
                descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=TEMPORARY_PREFIX)
                temporary = Path(name)
                with os.fdopen(descriptor, "wb") as file:
                    file.write(data)
                    file.flush()
                    os.fsync(file.fileno())
                temporary.chmod(0o644)
                yield temporary
        finally:
            if temporary is not None:
                temporary.unlink(missing_ok=True)


@contextmanager
def _said(verb: str, path: Path) -> Iterator[None]:
    """An error of the file system as one of the store; a file that is not there stays what it is, for a reader."""
    try:
        yield
    except OSError as error:
        if verb == "read" and isinstance(error, FileNotFoundError):
            raise
        kind = StoreAway if error.errno in AWAY else StoreError
        remedy = "free space or choose another --store" if verb == "write" else "look at the folder and its file system"
        raise kind(f"can't {verb} {path}: {error.strerror or error}; {remedy}") from error


def _unless_gone(error: OSError) -> None:
    if not isinstance(error, (FileNotFoundError, NotADirectoryError)):
        with _said("list", Path(error.filename)):
            raise error


def _sync_folder(folder: Path) -> None:
    """Make a new name survive a power cut."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
