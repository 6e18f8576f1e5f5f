"""moto's conditional writes, made atomic as S3's are: it looks for the key, and only then writes."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from moto.s3.responses import S3Response


def create_one_at_a_time() -> None:
    """From now on, writers wait for one another in this process's moto."""
    put: Callable[[Any], Any] = S3Response.put_object
    turn = threading.Lock()

    def put_object(self: Any) -> Any:
        with turn:
            return put(self)

    S3Response.put_object = put_object  # type: ignore[method-assign]
