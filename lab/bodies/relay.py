"""Byte relays between sockets: how a body, which has no network, reaches the cloud's endpoint."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]

_CHUNK = 1 << 16


def relay(connect: Callable[[], Awaitable[Streams]]) -> Callable[..., Awaitable[None]]:
    """A connection handler that passes everything on to what `connect` opens, both ways, until either side ends."""

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            far_reader, far_writer = await connect()
        except OSError:  # the far side is gone: the near side sees its connection end
            writer.close()
            return
        await asyncio.gather(pump(reader, far_writer), pump(far_reader, writer))

    return handle


async def pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Pass on what comes until one side ends, then end the other."""
    with contextlib.suppress(ConnectionError):
        while chunk := await reader.read(_CHUNK):
            writer.write(chunk)
            await writer.drain()
    writer.close()
