"""A folder as a store: temporary file, fsync, then `link`, which the kernel refuses when the name is taken."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from warehouse.store.protocol import StoreError

TEMPORARY_PREFIX = ".tmp-"
"""Files being written; never listed, so a killed writer leaves nothing a reader could see."""


class LocalStore:
    """Objects as files below one folder. Safe for many processes of one machine."""

    storage_options: dict[str, str] | None = None

    def __init__(self, root: Path) -> None:
        """`root` is made on the first write."""
        self.root = root.expanduser().absolute()

    @property
    def url(self) -> str:
        """The folder's absolute path."""
        return str(self.root)

    def uri(self, key: str) -> str:
        """The file's absolute path."""
        return str(self.root / key)

    def put_new(self, key: str, data: bytes) -> bool:
        """Create `key` only if absent (see `Store.put_new`)."""
        path = self.root / key
        with self._written(path, data) as temporary:
            try:
                os.link(temporary, path)
            except FileExistsError:
                return self.get(key) == data
            _sync_folder(path.parent)
        return True

    def put(self, key: str, data: bytes) -> None:
        """Write `key` atomically, replacing what is there."""
        path = self.root / key
        with self._written(path, data) as temporary:
            temporary.rename(path)

    def get(self, key: str) -> bytes | None:
        """The file's bytes; None: there is no such file."""
        try:
            return (self.root / key).read_bytes()
        except FileNotFoundError:
            return None

    def list(self, prefix: str) -> list[str]:
        """Keys below the folder `prefix`, sorted."""
        found = (
            str(Path(folder, name).relative_to(self.root))
            for folder, _, names in os.walk(self.root / prefix)
            for name in names
            if not name.startswith(TEMPORARY_PREFIX)
        )
        return sorted(found)

    def age_s(self, key: str) -> float | None:
        """Seconds since the file was written, by this machine's clock, which also stamped it; None: no such file."""
        try:
            return time.time() - (self.root / key).stat().st_mtime
        except FileNotFoundError:
            return None

    def silence_s(self, key: str) -> float | None:
        """See `Store.silence_s`: this one is never away."""
        return self.age_s(key)

    def hurry(self) -> None:
        """Nothing to do: nobody waits for it."""

    def delete(self, key: str) -> None:
        """Remove the file if it is there, and its folder if nothing else is in it."""
        path = self.root / key
        path.unlink(missing_ok=True)
        if path.parent != self.root and path.parent.exists() and not any(path.parent.iterdir()):
            path.parent.rmdir()

    @contextmanager
    def _written(self, path: Path, data: bytes) -> Iterator[Path]:
        """A synced temporary file beside `path` holding `data`; gone afterwards unless it was renamed."""
        temporary: Path | None = None
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=TEMPORARY_PREFIX)
            temporary = Path(name)
            with os.fdopen(descriptor, "wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            temporary.chmod(0o644)
            yield temporary
        except OSError as error:
            raise StoreError(
                f"can't write {path}: {error.strerror or error}; free space or choose another --store"
            ) from error
        finally:
            if temporary is not None:
                temporary.unlink(missing_ok=True)


def _sync_folder(folder: Path) -> None:
    """Make a new name survive a power cut."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
