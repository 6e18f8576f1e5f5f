"""The door of the lab's cloud: passes requests on to moto, through whatever the weather is (standard library only).

Requests are told apart by what they are signed for: S3's go to the store's door, all others to the cloud's. Unsigned
ones meet no weather.
"""

from __future__ import annotations

import asyncio
import random
import socket
from collections.abc import Callable

from lab.bodies.relay import pump
from lab.weather.conditions import CLOUD, STORE, Conditions
from lab.weather.requests import Request, read_request, refusal

_CHUNK = 1 << 16


class _Reset(Exception):
    """This connection ends without an answer."""


class Door:
    """Stands before one server on this machine."""

    def __init__(self, conditions: Conditions, port: int, draw: Callable[[], float] = random.random) -> None:
        """It is open from now on; who comes waits until it serves.

        Args:
            conditions: the weather, looked at for every request.
            port: of the server behind it, on 127.0.0.1.
            draw: a number from 0 to 1, for what happens to a share of the requests.
        """
        self._conditions, self._behind, self._draw = conditions, port, draw
        self._socket = socket.create_server(("127.0.0.1", 0), backlog=256)
        self.port: int = self._socket.getsockname()[1]

    async def serve(self) -> None:
        """Serve for ever."""
        server = await asyncio.start_server(self._serve_connection, sock=self._socket)
        async with server:
            await server.serve_forever()

    async def _serve_connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        answers: asyncio.Task[None] | None = None
        far_writer: asyncio.StreamWriter | None = None
        try:
            while (request := await read_request(reader, writer)) is not None:
                refused = await self._weathered(request, reader)
                if refused:
                    writer.write(refused)
                    await writer.drain()
                    continue
                if far_writer is None or answers is None:
                    far_reader, far_writer = await asyncio.open_connection("127.0.0.1", self._behind)
                    answers = asyncio.create_task(pump(far_reader, writer))
                is_lost = self._happens(request, "lost-answer")
                if is_lost:
                    answers.cancel()
                    await asyncio.wait([answers])
                far_writer.write(request.head + request.body)
                await far_writer.drain()
                if is_lost:
                    await far_reader.read(1)
                    raise _Reset
        except (_Reset, ConnectionError, asyncio.IncompleteReadError):
            writer.transport.abort()
        finally:
            if answers is not None:  # the loop itself does not keep a task
                answers.cancel()
            for each in (far_writer, writer):
                if each is not None:
                    each.close()

    async def _weathered(self, request: Request, reader: asyncio.StreamReader) -> bytes | None:
        """What a request gets instead of being passed on; None: it is, perhaps later.

        Raises:
            _Reset: nothing at all.
        """
        if not request.service:
            return None
        where = STORE if request.service == "s3" else CLOUD
        await asyncio.sleep(self._conditions.amount(where, "delay") or 0.0)
        if self._conditions.amount(where, "half-open"):
            while await reader.read(_CHUNK):  # until the client gives up
                pass
            raise _Reset
        if self._conditions.amount(where, "away") or self._happens(request, "cut"):
            raise _Reset
        if self._happens(request, "slow-down"):
            code = "SlowDown" if where == STORE else "RequestLimitExceeded"
            return refusal(request, "503 Service Unavailable", code, "Please reduce your request rate.")
        if request.is_create and self._happens(request, "conflict"):
            message = "The conditional request cannot succeed due to a conflicting operation against this resource."
            return refusal(request, "409 Conflict", "ConditionalRequestConflict", message)
        return self._refused_by_region(request) if request.service == "ec2" else None

    def _refused_by_region(self, request: Request) -> bytes | None:
        def has(what: str) -> bool:
            return any(self._conditions.amount(where, what) for where in (CLOUD, request.region))

        if has("unauthorized"):
            message = "You are not authorized to perform this operation."
            return refusal(request, "403 Forbidden", "UnauthorizedOperation", message)
        if not request.rents or not has("quota"):
            return None
        if request.is_spot:
            return refusal(
                request, "400 Bad Request", "MaxSpotInstanceCountExceeded", "Max spot instance count exceeded"
            )
        message = (
            "You have requested more vCPU capacity than your current vCPU limit of 0 allows for the instance bucket "
            "that the specified instance type belongs to."
        )
        return refusal(request, "400 Bad Request", "VcpuLimitExceeded", message)

    def _happens(self, request: Request, what: str) -> bool:
        """Whether this request is of the share that something happens to."""
        where = STORE if request.service == "s3" else CLOUD
        share = self._conditions.amount(where, what) if request.service else None
        return share is not None and self._draw() < share
