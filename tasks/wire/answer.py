"""One answer as it comes off the wire: status, header, body pieces, and the moment at which each piece arrived."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import NamedTuple

from tasks.wire.patience import PROGRESS_BYTES


class Arrivals(NamedTuple):
    """The moments of one exchange, by `time.monotonic`, in seconds.

    `pieces_s[i]` is when the body was `sizes[i]` bytes long, its transfer coding taken off. They are read as data comes
    off the socket, before any task wakes up.
    """

    sent_s: float
    pieces_s: Sequence[float]
    sizes: Sequence[int]
    ended_s: float


class Answer:
    """Collects what the parser finds of one answer."""

    def __init__(self, sent_s: float, turn_s: float = 0.0) -> None:
        self.sent_s = self.moved_s = self.heard_s = sent_s
        self._latest_turn_s = sent_s + turn_s
        self.status = 0
        self.headers: list[tuple[bytes, bytes]] = []
        self.body: list[bytes] = []
        self.pieces_s, self.sizes = array("d"), array("q")
        self.head_bytes = 0
        self.has_head = False
        self.is_anything = False
        """Whether a byte of it came."""
        self._size = 0
        self._moved_size: int | None = None
        """Bytes of the body when it last moved; None: its head is not whole."""

    def starts(self, status: int, headers: list[tuple[bytes, bytes]]) -> None:
        """The head is complete."""
        self.status, self.headers, self.has_head = status, headers, True

    def grows(self, piece: bytes, now_s: float) -> None:
        """A piece of the body came."""
        self.body.append(piece)
        self._size += len(piece)
        self.pieces_s.append(now_s)
        self.sizes.append(self._size)

    def heard(self, now_s: float) -> None:
        """Something came, and was parsed: it moves if that is progress."""
        self.heard_s = now_s
        begins = self.has_head and self._moved_size is None
        if begins or (self._moved_size is not None and self._size - self._moved_size >= PROGRESS_BYTES):
            self.moved_s, self._moved_size = now_s, self._size

    @property
    def turn_s(self) -> float:
        """When its server can be held to have turned to it: with its body, or at the latest when its turn was due."""
        return min([self._latest_turn_s, *self.pieces_s[:1]])

    @property
    def standstill(self) -> str:
        """What its server does instead of getting on with it."""
        if not self.is_anything:
            return "its first byte didn't come"
        if self.heard_s > self.moved_s:
            return f"it dribbles, with neither a whole head nor {PROGRESS_BYTES} bytes of its body in that time"
        return "its next byte didn't come"

    @property
    def content(self) -> bytes:
        """The body so far."""
        return b"".join(self.body)

    @property
    def ends_with_the_stream(self) -> bool:
        """Whether nothing but the connection's end tells the body's (RFC 9112, 6.3): no length, no chunks."""
        names = {name.lower() for name, _ in self.headers}
        return self.has_head and not names & {b"content-length", b"transfer-encoding"}

    def arrivals(self, ended_s: float) -> Arrivals:
        """Its moments, now that it has ended."""
        return Arrivals(self.sent_s, self.pieces_s, self.sizes, ended_s)
