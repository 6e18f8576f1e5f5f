"""A transport for `httpx.AsyncClient` whose cost and whose delays don't grow with the connections in use.

httpx 0.28's own scans all its connections at each request's start and end. With 256 of them it reports 3,004 ms for a
server that takes 100 ms (bench/README.md). Here an idle connection is taken from a stack, and a request that finds none
opens one: nothing queues. An answer is collected whole, so that no task wakes while it comes, with the moment at which
each piece arrived (`response.extensions["arrivals"]`). The client of httpx adds 0.12 ms to a request (cookies,
redirects, log lines). So what is timed is encoded beforehand and goes through `exchange`.
"""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Iterable
from time import monotonic

import httpx

from tasks.wire.connection import PATIENCE, Answer, Closed, Connection, Patience, patience_of

TICK_S = 1.0  # how often requests are asked whether their patience is out; more often where that is below four of these

Origin = tuple[str, int]


class Transport(httpx.AsyncBaseTransport):
    """HTTP/1.1 over plain TCP, GET and POST: the engine is on loopback."""

    def __init__(self) -> None:
        self._idle: dict[Origin, list[Connection]] = {}
        self._busy: set[Connection] = set()
        self._timer: asyncio.TimerHandle | None = None

    async def connect(self, url: httpx.URL, number: int) -> None:
        """Have so many idle connections ready, whatever is in use: no handshake falls into what is timed next.

        One after another: a burst would overflow a small accept queue, and a lost SYN is sent again after a second.
        Raises httpx.ConnectError: nobody listens, or not in time.
        """
        origin = _origin(url)
        stack = self._idle.setdefault(origin, [])
        for stale in [connection for connection in stack if not connection.is_usable]:
            stack.remove(stale)
            stale.close()
        while len(stack) < number:
            stack.append(await self._open(origin, PATIENCE.connect_s))

    async def exchange(self, url: httpx.URL, data: bytes, patience: Patience) -> tuple[Answer, float]:
        """Send an encoded request; returns its answer and the moment of its last byte. This is all that is timed.

        A kept connection may close before a byte of the answer came. A GET is then sent on a new one, once; a POST that
        was sent is never sent again. Raises httpx.TransportError: no connection, a broken answer, or patience ran out.
        """
        origin = _origin(url)
        kept = self._kept(origin)
        if kept is not None:
            try:
                return await self._ask(kept, data, patience)
            except Closed:
                if not data.startswith(b"GET "):
                    raise
        return await self._ask(await self._open(origin, patience.connect_s), data, patience)

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """`exchange`, as httpx asks for it."""
        await request.aread()
        answer, ended_s = await self.exchange(request.url, encoded(request), patience_of(request))
        return httpx.Response(
            answer.status,
            headers=answer.headers,
            stream=httpx.ByteStream(answer.content),
            extensions={"http_version": b"HTTP/1.1", "arrivals": answer.arrivals(ended_s)},
        )

    def still_working(self) -> None:
        """Tell all requests whose answer has not begun that the server makes progress: they are quiet from now on."""
        now_s = monotonic()
        for connection in self._busy:
            connection.moves(now_s)

    def quietest_s(self) -> float:
        """Longest time for which a request in flight has been quiet; 0 without any."""
        now_s = monotonic()
        return max((connection.quiet_s(now_s) for connection in self._busy), default=0.0)

    async def aclose(self) -> None:
        """Drop all connections."""
        if self._timer is not None:
            self._timer.cancel()
        for connection in [*self._busy, *(each for stack in self._idle.values() for each in stack)]:
            connection.close()
        self._idle.clear()
        await asyncio.sleep(0)  # asyncio closes their sockets in its next round

    async def _ask(self, connection: Connection, data: bytes, patience: Patience) -> tuple[Answer, float]:
        self._busy.add(connection)
        self._watch([patience])
        try:
            return await connection.ask(data, patience, len(self._busy))
        finally:
            self._busy.discard(connection)

    def _kept(self, origin: Origin) -> Connection | None:
        """The idle connection that was used last; stale ones are dropped on the way."""
        stack = self._idle.get(origin)
        while stack:
            connection = stack.pop()
            if connection.is_usable:
                return connection
            connection.close()
        return None

    async def _open(self, origin: Origin, connect_s: float) -> Connection:
        stack = self._idle.setdefault(origin, [])
        host, port = origin
        try:
            async with asyncio.timeout(connect_s):
                _, connection = await asyncio.get_running_loop().create_connection(
                    lambda: Connection(stack.append), host, port
                )
        except TimeoutError as error:
            raise httpx.ConnectTimeout(f"{host}:{port} gave no connection in {connect_s:g} s") from error
        except OSError as error:
            said = errno.errorcode.get(error.errno or 0, type(error).__name__)
            raise httpx.ConnectError(f"no connection to {host}:{port}: {error.strerror or error} ({said})") from error
        return connection

    def _watch(self, patiences: Iterable[Patience]) -> None:
        if self._timer is None:
            bounds = [bound for each in patiences for bound in (each.quiet_s, each.whole_s) if bound is not None]
            self._timer = asyncio.get_running_loop().call_later(min([TICK_S, *(b / 4 for b in bounds)]), self._tick)

    def _tick(self) -> None:
        self._timer, now_s = None, monotonic()
        for connection in self._busy:
            connection.check(now_s)
        if self._busy:
            self._watch([connection.patience for connection in self._busy])


def _origin(url: httpx.URL) -> Origin:
    if url.scheme != "http":
        raise httpx.UnsupportedProtocol(f"{url}: this transport speaks plain http only")
    return url.host, url.port or 80


def encoded(request: httpx.Request) -> bytes:
    """A request as bytes. Raises httpx.UnsupportedProtocol: neither GET nor POST, or a body of unknown length."""
    if request.method not in ("GET", "POST") or "transfer-encoding" in request.headers:
        raise httpx.UnsupportedProtocol(f"{request.method}: this transport sends GET, and POST of a known length")
    lines = [b"%s %s HTTP/1.1" % (request.method.encode(), request.url.raw_path)]
    lines += [b"%s: %s" % header for header in request.headers.raw]
    return b"\r\n".join(lines) + b"\r\n\r\n" + request.content
