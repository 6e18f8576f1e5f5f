"""What this process says, with each known secret replaced by its name: on its streams, and in what it logs."""

from __future__ import annotations

import logging
import sys
import traceback
from typing import Any, TextIO, cast

from configs.secrets.held import redacted


class _Redacted:
    """A text stream that is another one but for its `write`."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        self._stream.write(redacted(text))
        return len(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


def guard_streams() -> None:
    """From now on stdout and stderr show no secret, in a traceback neither."""
    sys.stdout, sys.stderr = (cast(TextIO, _Redacted(stream)) for stream in (sys.stdout, sys.stderr))


def guard_logs() -> None:
    """From now on no log record of any library shows a secret. May be called again."""
    logging.setLogRecordFactory(_record)


def _record(*args: Any, **kwargs: Any) -> logging.LogRecord:
    record = logging.LogRecord(*args, **kwargs)
    try:
        said = record.getMessage()
    except Exception:  # whoever logs has another trouble to tell of than a wrong format
        said = f"{record.msg} {record.args}"
    record.msg, record.args = redacted(said), ()
    if record.exc_info and record.exc_info[0] is not None:
        record.exc_text = redacted("".join(traceback.format_exception(*record.exc_info)).rstrip())
    return record
