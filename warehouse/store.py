"""Where everything is kept: one small protocol over a local folder and a bucket of S3 or Google.

Everything rests on one primitive, `put_new`: create only if absent. Listing is used to find work, never as truth.
"""

from __future__ import annotations

from pathlib import Path
from typing import Protocol
from urllib.parse import unquote, urlparse


class StoreError(Exception):
    """The store can't do what was asked; the text says where, why and what to do."""


class Store(Protocol):
    """Bytes under keys. Keys are relative, `/`-separated, and never start with `/`."""

    @property
    def url(self) -> str:
        """The address this store was opened with."""

    @property
    def storage_options(self) -> dict[str, str] | None:
        """What polars needs to read `uri(key)`; none for a local folder."""

    def uri(self, key: str) -> str:
        """Where `key` can be read by polars, duckdb or pandas."""

    def put_new(self, key: str, data: bytes) -> bool:
        """Create `key` only if absent. False: another object with other bytes is already there.

        Raises:
            StoreError: the store can't be written.
        """

    def put(self, key: str, data: bytes) -> None:
        """Write `key` whether or not it exists. Only heartbeats are written like this."""

    def get(self, key: str) -> bytes | None:
        """The object's bytes, or none if there is no such key."""

    def list(self, prefix: str) -> list[str]:
        """Keys below `prefix`, sorted. May lag behind writes on some stores."""

    def age_s(self, key: str) -> float | None:
        """Seconds since `key` was written, on the store's own clock; none if there is no such key."""

    def delete(self, key: str) -> None:
        """Remove `key`. Used by the self-test on its own probe objects, and by nothing else."""


def open_store(url: str) -> Store:
    """The store behind a path, a `file://` address, `s3://bucket/prefix` or `gs://bucket/prefix`.

    An S3 endpoint other than AWS is taken from `AWS_ENDPOINT_URL_S3` or `AWS_ENDPOINT_URL`.

    Raises:
        StoreError: the address has another scheme, names no bucket, or its credentials are not set.
    """
    parts = urlparse(url)
    if parts.scheme in ("s3", "gs") and not parts.netloc:
        raise StoreError(f"store {url!r} names no bucket: use {parts.scheme}://bucket/prefix")
    if parts.scheme == "s3":
        from warehouse.store_s3 import S3Store

        return S3Store(bucket=parts.netloc, prefix=parts.path)
    if parts.scheme == "gs":
        from warehouse.store_gs import GsStore

        return GsStore(bucket=parts.netloc, prefix=parts.path)
    from warehouse.store_local import LocalStore

    if parts.scheme == "file":
        return LocalStore(Path(unquote(parts.path)))
    if parts.scheme and "://" in url:
        raise StoreError(f"store {url!r} has the scheme {parts.scheme!r}: use a folder, s3://bucket/prefix or gs://...")
    return LocalStore(Path(url))
