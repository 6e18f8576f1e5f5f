"""A real TCP server on loopback that plays a script, byte for byte; and the wire's clock, moved by hand."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Self

import pytest

from tasks.wire import connection, transport

Play = Callable[[asyncio.StreamWriter], Awaitable[None]]

OK = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok"


async def hang(_: asyncio.StreamWriter) -> None:
    await asyncio.Event().wait()


async def close(writer: asyncio.StreamWriter) -> None:
    writer.close()


def then_close(data: bytes) -> Play:
    async def play(writer: asyncio.StreamWriter) -> None:
        writer.write(data)
        writer.close()

    return play


class Scripted:
    """The n-th request gets the n-th of `script`, the last one again and again."""

    def __init__(self, *script: bytes | Play) -> None:
        self.script: Sequence[bytes | Play] = script
        self.requests: list[bytes] = []
        self.connections = 0
        self.gone = asyncio.Event()
        """Set when a client closes its connection."""

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self._tasks: set[asyncio.Task[None]] = set()
        self._writers: list[asyncio.StreamWriter] = []
        self.url = f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        for writer in self._writers:
            writer.transport.abort()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._server.wait_closed()

    async def asked(self) -> None:
        while not self.requests:
            await asyncio.sleep(0)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        self._writers.append(writer)
        self.connections += 1
        playing: asyncio.Future[None] | None = None
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                length = [line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")]
                body = await reader.readexactly(int(length[0].split(b":")[1])) if length else b""
                play = self.script[min(len(self.requests), len(self.script) - 1)]
                self.requests.append(head + body)
                if isinstance(play, bytes):
                    writer.write(play)
                else:
                    playing = asyncio.ensure_future(play(writer))
        except (asyncio.IncompleteReadError, ConnectionError):
            self.gone.set()
        finally:
            if playing is not None:
                playing.cancel()
            writer.close()


class HandClock:
    """`time.monotonic` of the wire; no time passes but where a test adds it to `now_s`.

    So how long this machine takes for a test decides nothing.
    """

    now_s = 1000.0
    asked = 0

    def __call__(self) -> float:
        self.asked += 1
        return self.now_s


def moved_by_hand(monkeypatch: pytest.MonkeyPatch) -> HandClock:
    """Give the wire such a clock; its requests are asked for their patience every real millisecond."""
    clock = HandClock()
    monkeypatch.setattr(transport, "monotonic", clock)
    monkeypatch.setattr(connection, "monotonic", clock)
    monkeypatch.setattr(transport, "TICK_S", 0.001)
    return clock
