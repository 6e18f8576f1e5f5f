"""Object writes that hang, so that a node can be taken away between two of them."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from moto.s3.exceptions import S3ClientError
from moto.s3.models import S3Backend

_TICK_S = 0.05


class SlowDown(S3ClientError):
    """S3's own word for `try again`: a client that still lives repeats the write."""

    code = 503  # type: ignore[assignment]

    def __init__(self) -> None:
        super().__init__("SlowDown", "Please reduce your request rate.")


def hold_writes(flag: Path) -> None:
    """While the flag file exists, writes whose key contains its text hang; then they fail, unwritten."""
    put: Callable[..., Any] = S3Backend.put_object

    def put_object(self: Any, bucket_name: str, key_name: str, *rest: Any, **options: Any) -> Any:
        if not _is_held(flag, key_name):
            return put(self, bucket_name, key_name, *rest, **options)
        while _is_held(flag, key_name):
            time.sleep(_TICK_S)
        raise SlowDown

    S3Backend.put_object = put_object  # type: ignore[method-assign]


def _is_held(flag: Path, key: str) -> bool:
    try:
        held = flag.read_text(encoding="utf-8")
    except FileNotFoundError:
        return False
    return bool(held) and held in key
