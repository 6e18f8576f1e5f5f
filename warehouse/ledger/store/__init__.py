"""Where everything is kept: one small protocol over a local folder and a bucket of S3 or Google.

Listing is used to find work, never as truth. Backends are imported only when asked for: a folder needs no boto3.
"""

from __future__ import annotations

from pathlib import Path
from urllib.parse import unquote, urlparse

from warehouse.ledger.store.protocol import Patience, Store, StoreAway, StoreError, until_back

__all__ = ["Store", "StoreAway", "StoreError", "open_store", "until_back"]


def open_store(url: str, *, is_known: bool = False) -> Store:
    """The store behind a path, a `file://` address, `s3://bucket/prefix` or `gs://bucket/prefix`.

    An S3 endpoint other than AWS is taken from `AWS_ENDPOINT_URL_S3` or `AWS_ENDPOINT_URL`. `is_known`: it answered
    another process before, as a node's store answered its flow, so it is waited for longer. StoreError: the address has
    another scheme, names no bucket, or its credentials are not set.
    """
    parts = urlparse(url)
    if parts.scheme in ("s3", "gs") and not parts.netloc:
        raise StoreError(f"store {url!r} names no bucket: use {parts.scheme}://bucket/prefix")
    if parts.scheme == "s3":
        from warehouse.ledger.store.s3 import S3Store

        return S3Store(bucket=parts.netloc, prefix=parts.path, is_known=is_known)
    if parts.scheme == "gs":
        from warehouse.ledger.store.gs import GsStore

        return GsStore(bucket=parts.netloc, prefix=parts.path, is_known=is_known)
    if parts.scheme == "file":
        return _folder(Path(unquote(parts.path)), is_known)
    if parts.scheme and "://" in url:
        raise StoreError(f"store {url!r} has the scheme {parts.scheme!r}: use a folder, s3://bucket/prefix or gs://...")
    return _folder(Path(url), is_known)


def _folder(path: Path, is_known: bool) -> Store:
    from warehouse.ledger.store.local import LocalStore

    return LocalStore(path, patience=Patience(str(path), is_known=is_known))
