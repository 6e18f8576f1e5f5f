"""One connection: how long it waits, what it collects of an answer as it comes in, and the clock read in between."""

from __future__ import annotations

import asyncio
from array import array
from collections.abc import Callable, Sequence
from time import monotonic
from typing import NamedTuple, cast

import httptools
import httpx

REUSE_S = 3.0
"""Longest idle time after which a kept-alive connection is used again. The server, uvicorn (and so vLLM), closes it
after 5 s (`timeout_keep_alive`), and no request must be sent into a closing one."""

MOST_HEAD_BYTES = 1 << 20  # an answer's head may be this large; a longer one is a server that never comes to the point

PROGRESS_BYTES = 64
"""Bytes of a body that are progress, together: less than an event of a stream, which has its choice, its delta and its
usage. A server that dribbles a byte now and then, or a header, makes no token."""


class Patience(NamedTuple):
    """Bounds on one request, in seconds; None: no bound. A request has them as its extension `patience`."""

    connect_s: float = 10.0  # until the connection is open: on loopback a listening server takes none
    quiet_s: float | None = 300.0
    """Without progress: a whole head, then `PROGRESS_BYTES` of the body each time. Before the head it is a sign that
    the server works on it (`Transport.still_working`). The prefill of a full context takes less on any GPU worth
    renting."""
    whole_s: float | None = None  # from the request's turn to the answer's last byte, however steadily it trickles
    turn_s: float = 0.0
    """Its turn comes with the first byte of its body, or at the latest so long after sending for each request then in
    flight, itself among them. The prompts of those before it are read first."""


PATIENCE = Patience()  # where nobody asks for another


def patience_of(request: httpx.Request) -> Patience:
    """The bounds that a request brings; else those of httpx's own timeout, whose `read` is the quiet time."""
    own = request.extensions.get("patience")
    if isinstance(own, Patience):
        return own
    timeout = request.extensions.get("timeout") or {}
    connect_s = timeout.get("connect")
    return Patience(PATIENCE.connect_s if connect_s is None else connect_s, timeout.get("read"))


class Arrivals(NamedTuple):
    """The moments of one exchange, by `time.monotonic`, read as data comes off the socket, before any task wakes up."""

    sent_s: float
    pieces_s: Sequence[float]  # when the body was so many of `sizes` bytes long, its transfer coding taken off
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
        self.is_anything = False  # whether a byte of it came
        self._size = 0
        self._moved_size: int | None = None  # bytes of the body when it last moved; None: its head is not whole

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


class Closed(httpx.RemoteProtocolError):
    """The server closed a connection before a byte of the answer came: it had timed out, or the server died."""


class Connection(asyncio.Protocol):
    """One request at a time. What goes wrong with it closes the connection."""

    def __init__(self, is_free: Callable[[Connection], None]) -> None:
        self._is_free = is_free
        self._parser = httptools.HttpResponseParser(self)
        self._socket: asyncio.Transport | None = None
        self._answer: Answer | None = None
        self._done: asyncio.Future[float] | None = None
        self._headers: list[tuple[bytes, bytes]] = []
        self._now_s = 0.0
        self.idle_since_s = monotonic()
        self.patience = PATIENCE

    async def ask(self, data: bytes, patience: Patience, in_flight: int = 1) -> tuple[Answer, float]:
        """The answer to a request, of so many `in_flight`, and its last byte's moment. Raises httpx.TransportError."""
        assert self._socket is not None and self._done is None
        if self._socket.is_closing():
            raise Closed("closed before anything was sent")
        done: asyncio.Future[float] = asyncio.get_running_loop().create_future()
        answer = Answer(monotonic(), in_flight * patience.turn_s)
        self._done, self._answer, self.patience = done, answer, patience
        self._socket.write(data)
        try:
            return answer, await done
        finally:
            if self._done is done:  # cancelled, or failed: the answer may still come, and nobody else may be given it
                self._done = self._answer = None
                self.close()

    @property
    def is_usable(self) -> bool:
        """Whether it may be sent on again: open, and not so long idle that the server may be closing it."""
        return self._socket is not None and not self._socket.is_closing() and monotonic() - self.idle_since_s < REUSE_S

    def close(self) -> None:
        """Drop it at once."""
        if self._socket is not None:
            self._socket.abort()

    def moves(self, now_s: float) -> None:
        """The server works on an answer whose body has not begun."""
        if self._answer is not None and not self._answer.sizes:
            self._answer.moved_s = now_s

    def quiet_s(self, now_s: float) -> float:
        """Seconds since its answer moved; 0 without one."""
        return 0.0 if self._answer is None else now_s - self._answer.moved_s

    def check(self, now_s: float) -> None:
        """End the request if it has run out of patience."""
        if self._answer is None:
            return
        quiet_s, whole_s = self.quiet_s(now_s), now_s - self._answer.turn_s
        if self.patience.quiet_s is not None and quiet_s > self.patience.quiet_s:
            said = f"no progress for {self.patience.quiet_s:g} s: {self._answer.standstill}"
            self._fail(httpx.ReadTimeout(said))
        elif self.patience.whole_s is not None and whole_s > self.patience.whole_s:
            self._fail(httpx.ReadTimeout(f"not answered in {self.patience.whole_s:g} s from its turn on"))

    # what asyncio calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """It is open."""
        self._socket = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        """Read the clock, then what came."""
        now_s = self._now_s = monotonic()
        answer = self._answer
        if answer is None:  # unasked: whatever it is, the next answer would not be the next request's
            self.close()
            return
        answer.is_anything = True
        if not answer.has_head:
            answer.head_bytes += len(data)
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
            self._fail(httpx.RemoteProtocolError(f"the answer is no HTTP/1.1: {error}"))
            return
        answer.heard(now_s)
        if not answer.has_head and answer.head_bytes > MOST_HEAD_BYTES:
            self._fail(httpx.RemoteProtocolError(f"a header of more than {MOST_HEAD_BYTES} bytes"))

    def connection_lost(self, exc: Exception | None) -> None:
        """It is closed: the answer's end if that is how it ends, else a failure."""
        answer = self._answer
        if answer is None:
            return
        if answer.ends_with_the_stream and exc is None:
            self._succeed(monotonic())
        elif not answer.is_anything:
            self._fail(Closed(f"closed before a byte of the answer came ({exc or 'by the server'})"))
        else:
            came = f"{answer.sizes[-1] if answer.sizes else 0} bytes of its body"
            self._fail(httpx.RemoteProtocolError(f"the answer was cut short after {came} ({exc or 'by the server'})"))

    # what httptools calls

    def on_message_begin(self) -> None:
        """An answer begins, or a 1xx before one."""
        self._headers = []
        if self._answer is None:
            self.close()  # a second answer to one request: what follows would be out of step

    def on_header(self, name: bytes, value: bytes) -> None:
        """One header is whole."""
        self._headers.append((name, value))

    def on_headers_complete(self) -> None:
        """The head is whole."""
        status = self._parser.get_status_code()
        if self._answer is not None and status >= 200:  # 1xx announces the answer that follows
            self._answer.status, self._answer.headers, self._answer.has_head = status, self._headers, True

    def on_body(self, body: bytes) -> None:
        """A piece of the body, its transfer coding taken off."""
        if self._answer is not None:
            self._answer.grows(body, self._now_s)

    def on_message_complete(self) -> None:
        """The answer is whole: the connection may be used again, if the server agrees."""
        if self._answer is None or not self._answer.has_head:
            return
        self.idle_since_s = self._now_s
        keeps = self._parser.should_keep_alive()
        self._succeed(self._now_s)
        if keeps:
            self._is_free(self)
        else:
            self.close()

    def _succeed(self, ended_s: float) -> None:
        if self._done is not None and not self._done.done():
            self._done.set_result(ended_s)
        self._done = self._answer = None

    def _fail(self, error: httpx.TransportError) -> None:
        if self._done is not None and not self._done.done():
            self._done.set_exception(error)
        self.close()
