"""moto's conditional writes, made atomic as S3's are: it looks for the key, and only then writes."""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Callable
from typing import Any

from moto.s3.responses import S3Response


def create_one_at_a_time() -> None:
    """From now on, writers of one key wait for one another in this process's moto.

    Those of other keys don't: a test may hold one write for minutes.
    """
    put: Callable[[Any], Any] = S3Response.put_object
    turns: defaultdict[str, threading.Lock] = defaultdict(threading.Lock)

    def put_object(self: Any) -> Any:
        with turns[f"{self.bucket_name}/{self.parse_key_name()}"]:
            return put(self)

    S3Response.put_object = put_object  # type: ignore[method-assign]
