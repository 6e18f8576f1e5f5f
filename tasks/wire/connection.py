"""One connection: a request goes out, its answer is parsed as it comes in, and the clock is read in between."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from time import monotonic
from typing import cast

import httptools
import httpx

from tasks.wire.answer import Answer
from tasks.wire.patience import MOST_HEAD_BYTES, PATIENCE, REUSE_S, Patience


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
        """Send a request; returns its answer and the moment of its last byte.

        Args:
            data: the request, encoded.
            patience: of it.
            in_flight: requests to the same server, itself among them.

        Raises:
            httpx.TransportError: the connection broke, the answer is no HTTP, or patience ran out.
        """
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
            self._answer.starts(status, self._headers)

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
