"""An answer as it was heard: bytes and moments. Nothing is decoded while others are still timed."""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping
from typing import Any, NamedTuple

from tasks.client.failures import RequestFailed
from tasks.wire.answer import Arrivals
from tasks.wire.patience import Patience

EVENT = b"data: "
"""How a line of a stream begins that carries an event (WHATWG HTML, 9.2.5)."""

PACK_FROM_BYTES = 1 << 16
"""Shorter answers are kept as they came: only streams are longer, and they are forms that repeat themselves."""


class Ready(NamedTuple):
    """A request that is encoded: sending it needs nothing but the wire."""

    data: bytes
    body: Mapping[str, Any]
    streams: bool
    patience: Patience


class Heard(NamedTuple):
    """What came back to one request, with its moments by `time.monotonic`."""

    body: Mapping[str, Any]
    status: int
    data: bytes
    arrivals: Arrivals
    is_packed: bool = False

    @property
    def content(self) -> bytes:
        """The body."""
        return zlib.decompress(self.data) if self.is_packed else self.data

    @property
    def is_large(self) -> bool:
        """Whether packing it makes room."""
        return len(self.data) >= PACK_FROM_BYTES

    def packed(self) -> Heard:
        """The same in a fraction of the room."""
        return self if self.is_packed else self._replace(data=zlib.compress(self.data, 1), is_packed=True)

    @property
    def sent_s(self) -> float:
        """When the request was written to its connection."""
        return self.arrivals.sent_s

    @property
    def ended_s(self) -> float:
        """When the answer's last byte was read."""
        return self.arrivals.ended_s

    @property
    def wall_s(self) -> float:
        """Seconds on the wire."""
        return self.arrivals.ended_s - self.arrivals.sent_s

    def json(self) -> dict[str, Any]:
        """The answer's JSON object.

        Raises:
            RequestFailed: an error status, or no JSON object.
        """
        self._good()
        try:
            answer = json.loads(self.content)
        except ValueError as error:
            raise RequestFailed(f"the answer is no JSON: {self.content[:300]!r}") from error
        if not isinstance(answer, dict):
            raise RequestFailed(f"the answer is no JSON object: {self.content[:300]!r}")
        return answer

    def events(self) -> list[tuple[float, bytes]]:
        """Events of a stream, each with the seconds from the request to its last byte.

        Raises:
            RequestFailed: an error status.
        """
        self._good()
        events, end, piece = [], 0, 0
        for line in self.content.splitlines(keepends=True):
            end += len(line)
            if line.startswith(EVENT) and line.endswith((b"\n", b"\r")):
                while self.arrivals.sizes[piece] < end:
                    piece += 1
                events.append((self.arrivals.pieces_s[piece] - self.arrivals.sent_s, line[len(EVENT) :].strip()))
        return events

    def _good(self) -> None:
        if self.status != 200:
            raise RequestFailed(f"HTTP {self.status}: {self.content[:300].decode(errors='replace')}")
